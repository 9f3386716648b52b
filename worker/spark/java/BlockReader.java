package icefloe.source;

import java.io.Serializable;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;

import org.apache.kafka.common.serialization.ByteBufferDeserializer;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.FlatMapFunction;

/** Reads the ranges of a Spark task into blocks, and has the settings of all reads. */
final class BlockReader implements FlatMapFunction, Serializable {
    final HashMap properties;
    final int blockRows;
    final int blockBytes;
    final boolean keys;
    final boolean headers;

    /**
     * @param properties of the consumers; deserializers are added
     * @param blockRows most records of a block
     * @param blockBytes a block ends with the record that reaches this size
     */
    BlockReader(Map properties, int blockRows, int blockBytes, boolean keys, boolean headers) {
        this.properties = new HashMap(properties);
        this.properties.put("key.deserializer", ByteBufferDeserializer.class.getName());
        this.properties.put("value.deserializer", ByteBufferDeserializer.class.getName());
        this.blockRows = blockRows;
        this.blockBytes = blockBytes;
        this.keys = keys;
        this.headers = headers;
    }

    /** Return the blocks of a Spark task. */
    public Iterator call(Object ranges) {
        List list = (List) ((Iterator) ranges).next();
        return new RangeBlocks(this, list, TaskContext.get(), Long.MAX_VALUE, false);
    }
}
