"""Per peer, kind of control message, variant; and what is unlike the beginning. Functions of DataFrames."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's users call it

T_975: tuple[float, ...] = (
    12.706,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
    2.228,
    2.201,
    2.179,
    2.160,
    2.145,
)
T_975 += (2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048)
T_975 += (2.045, 2.042)
"""Student's t, two-sided 95 %, by degrees of freedom from 1; beyond the last, the normal one."""
NORMAL_975 = 1.960
METRICS = (
    "delivery_ratio",
    "deadline_hit_ratio",
    "age_mean_us",
    "age_p99_us",
    "repeated_share",
    "control_bytes_s",
    "data_bytes_s",
)
ANOMALY_SIGMAS = 4.0
BASELINE_SHARE = 0.25


def last_counters(controls: DataFrame) -> DataFrame:
    """run, peer, counter, value: as they stood at the end of each start of a peer, starts added up."""
    final = controls.groupBy("run", "peer", "epoch").agg(
        F.max_by("counters", "ts").alias("counters"), F.max_by("variant", "ts").alias("variant")
    )
    return (
        final.select("run", "peer", F.explode("counters").alias("counter", "value"))
        .groupBy("run", "peer", "counter")
        .agg(F.sum("value").alias("value"))
    )


def peers(spans: DataFrame, counters: DataFrame) -> DataFrame:
    """One row per peer: for how long it ran, how often it started, what it counted."""
    lived = spans.groupBy("run", "peer").agg(
        F.count("*").alias("starts"),
        (F.sum(F.col("last_ts") - F.col("first_ts")) / 1e6).alias("ran_s"),
        F.sum("rows").alias("records"),
    )
    names = ("published", "delivered", "forwarded", "lost", "resent", "rerouted", "records_dropped")
    counted = counters.groupBy("run", "peer").agg(
        *(F.sum(F.when(F.col("counter") == name, F.col("value"))).alias(name) for name in names),
        F.sum(F.when(F.startswith("counter", F.lit("dropped.")), F.col("value"))).alias("dropped"),
        F.sum(F.when(F.col("counter") == "sent.data_bytes", F.col("value"))).alias("data_bytes"),
        F.sum(F.when(F.col("counter") == "sent.control_bytes", F.col("value"))).alias("control_bytes"),
    )
    return lived.join(counted, ["run", "peer"], "left")


def control(counters: DataFrame, spans: DataFrame) -> DataFrame:
    """Bytes of control by kind: in all, per second of a peer's life, and as a share of all control."""
    parts = counters.where(F.col("counter").rlike("^sent\\.[a-z]+_bytes$"))
    parts = parts.where(~F.col("counter").isin("sent.data_bytes", "sent.control_bytes"))
    ran = spans.groupBy("run").agg((F.sum(F.col("last_ts") - F.col("first_ts")) / 1e6).alias("peer_seconds"))
    return (
        parts.groupBy("run", F.regexp_extract("counter", "^sent\\.([a-z]+)_bytes$", 1).alias("kind"))
        .agg(F.sum("value").alias("bytes"))
        .join(ran, "run")
        .withColumn("bytes_per_peer_s", F.col("bytes") / F.col("peer_seconds"))
        .withColumn("share", F.col("bytes") / F.sum("bytes").over(Window.partitionBy("run")))
        .drop("peer_seconds")
    )


def runs(flows: DataFrame, counters: DataFrame, controls: DataFrame, spans: DataFrame) -> DataFrame:
    """One row per run, with its variant: the first directory of `VARIANT/…`, else what its peers say."""
    begun = spans.groupBy("run").agg(
        F.min("first_ts").alias("start"),
        ((F.max("last_ts") - F.min("first_ts")) / 1e6).alias("seconds"),
        F.count_distinct("peer").alias("peers"),
    )
    said = controls.groupBy("run").agg(F.max("variant").alias("said"))
    top = F.substring_index("run", "/", 1)
    variant = F.when(F.contains("run", F.lit("/")), top).otherwise(F.coalesce("said", F.lit("")))
    delivered = flows.groupBy("run").agg(
        F.sum("delivered").alias("delivered"),
        (F.sum("delivered") / F.sum("expected")).alias("delivery_ratio"),
        (F.sum("in_time") / F.nullif(F.sum("with_deadline"), F.lit(0))).alias("deadline_hit_ratio"),
        (F.sum(F.col("age_mean_us") * F.col("delivered")) / F.sum("delivered")).alias("age_mean_us"),
        F.max("age_p99_us").alias("age_p99_us"),
        (F.sum(F.col("repeated_share") * F.col("delivered")) / F.sum("delivered")).alias("repeated_share"),
    )
    sent = counters.groupBy("run").agg(
        F.sum(F.when(F.col("counter") == "sent.control_bytes", F.col("value"))).alias("control_bytes"),
        F.sum(F.when(F.col("counter") == "sent.data_bytes", F.col("value"))).alias("data_bytes"),
    )
    joined = begun.join(said, "run", "left").join(delivered, "run", "left").join(sent, "run", "left")
    return (
        joined.withColumn("variant", variant)
        .withColumn("control_bytes_s", F.col("control_bytes") / F.col("seconds"))
        .withColumn("data_bytes_s", F.col("data_bytes") / F.col("seconds"))
        .drop("said")
    )


def variants(runs: DataFrame) -> DataFrame:
    """variant, metric, runs, mean, low, high: 95 % confidence over runs (Student's t); none from one run."""
    long = runs.select("variant", F.explode(F.create_map(*_pairs())).alias("metric", "value")).where(
        F.col("value").isNotNull()
    )
    table = F.array(*(F.lit(value) for value in T_975))
    n = F.col("runs")
    t = F.when(n - 1 <= len(T_975), F.get(table, (n - 2).cast("int"))).otherwise(F.lit(NORMAL_975))
    half = F.when(n > 1, t * F.col("sd") / F.sqrt(n))
    return (
        long.groupBy("variant", "metric")
        .agg(F.count("*").alias("runs"), F.avg("value").alias("mean"), F.stddev("value").alias("sd"))
        .withColumn("low", F.col("mean") - half)
        .withColumn("high", F.col("mean") + half)
        .drop("sd")
    )


def _pairs() -> list[Column]:
    return [part for name in METRICS for part in (F.lit(name), F.col(name).cast("double"))]


def anomalies(slots: DataFrame, keys: list[str], value: str, baseline_us: int | None = None) -> DataFrame:
    """Slots unlike the baseline period, which is the first quarter of a run or its first so many µs.

    Unlike is more than four standard deviations off, which count as at least a tenth of the mean and 1 ms.
    """
    run = Window.partitionBy("run")
    begun, ended = F.min("slot").over(run), F.max("slot").over(run)
    share = (ended - begun) * BASELINE_SHARE if baseline_us is None else F.lit(baseline_us)
    rows = slots.where(F.col(value).isNotNull()).withColumn("is_base", F.col("slot") <= begun + share)
    base = (
        rows.where("is_base")
        .groupBy(*keys)
        .agg(F.avg(value).alias("usual"), F.coalesce(F.stddev(value), F.lit(0.0)).alias("sd"))
    )
    sigmas = (F.col(value) - F.col("usual")) / F.greatest("sd", F.col("usual") * 0.1, F.lit(1000.0))
    return (
        rows.where(~F.col("is_base"))
        .join(base, keys)
        .withColumn("sigmas", sigmas)
        .where(F.abs("sigmas") > ANOMALY_SIGMAS)
        .select(
            "run",
            F.concat_ws(" ", *(name for name in keys if name != "run")).alias("what"),
            F.lit(value).alias("metric"),
            "slot",
            F.col(value).alias("value"),
            "usual",
            "sigmas",
        )
    )
