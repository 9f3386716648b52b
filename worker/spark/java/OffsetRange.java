package icefloe.source;

import java.io.Serializable;
import java.util.ArrayList;

/** The records of a partition from start (inclusive) to end (exclusive). */
final class OffsetRange implements Serializable {
    final int partition;
    final long start;
    final long end;
    final String topic;

    OffsetRange(String[] parts) {
        partition = Integer.parseInt(parts[0]);
        start = Long.parseLong(parts[1]);
        end = Long.parseLong(parts[2]);
        topic = parts[3];
    }

    /**
     * Return the ranges of one Spark task.
     *
     * @param line ranges (partition, start, end, topic, separated by spaces), separated by commas
     */
    static ArrayList parse(String line) {
        String[] texts = line.isEmpty() ? new String[0] : line.split(",");
        ArrayList ranges = new ArrayList();
        for (int i = 0; i < texts.length; i++) {
            ranges.add(new OffsetRange(texts[i].split(" ")));
        }
        return ranges;
    }
}
