package icefloe.source;

import java.util.ArrayList;
import java.util.Map;

import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.classic.SparkSession;

/**
 * Reads ranges of Kafka offsets into blocks with Spark tasks: rows that each hold the columns of many
 * records.
 *
 * Spark's own source makes a row of each record, and Spark then makes Arrow vectors of rows, value by
 * value. This reader copies the bytes of a record to the ends of columns.
 *
 * The worker compiles this folder with Spark's compiler, Janino, which does not support lambdas.
 */
public final class RecordBlocks {
    private final SparkSession spark;
    private final BlockReader reader;

    /** The arguments after the session are those of BlockReader. */
    public RecordBlocks(
        SparkSession spark, Map properties, int blockRows, int blockBytes, boolean keys,
        boolean headers
    ) {
        this.spark = spark;
        reader = new BlockReader(properties, blockRows, blockBytes, keys, headers);
    }

    /**
     * Return the blocks of a read as a Dataset; nothing is read before an action.
     *
     * @param plan a line for each Spark task, see OffsetRange
     */
    public Object rows(String plan) {
        ArrayList tasks = new ArrayList();
        String[] lines = plan.split("\n", -1);
        for (int i = 0; i < lines.length; i++) {
            tasks.add(OffsetRange.parse(lines[i]));
        }
        JavaSparkContext context = new JavaSparkContext(spark.sparkContext());
        return spark.internalCreateDataFrame(
            context.parallelize(tasks, tasks.size()).mapPartitions(reader).rdd(), Block.SCHEMA, false
        );
    }
}
