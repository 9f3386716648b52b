package icefloe.source;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;

import org.apache.kafka.clients.consumer.KafkaConsumer;

/** The consumers of this process that no read uses. They keep their connections. */
final class IdleConsumers extends Thread {
    /** Consumers that no read has used for this time are closed. */
    private static final long IDLE_MS = 60000L;

    static final class Held {
        final HashMap properties;
        final KafkaConsumer consumer;
        long idleSinceMs;

        Held(HashMap properties) {
            this.properties = properties;
            consumer = new KafkaConsumer(properties);
        }
    }

    private static final ArrayDeque IDLE = new ArrayDeque();
    private static IdleConsumers closing;

    private IdleConsumers() {
        super("icefloe-idle-consumers");
        setDaemon(true);
    }

    static Held take(HashMap properties) {
        synchronized (IDLE) {
            for (Iterator each = IDLE.descendingIterator(); each.hasNext();) {
                Held held = (Held) each.next();
                if (held.properties.equals(properties)) {
                    each.remove();
                    return held;
                }
            }
        }
        return new Held(properties);
    }

    /** Take back a consumer: it is used again if its read was complete. */
    static void give(Held held, boolean isUsable) {
        if (!isUsable) {
            held.consumer.close(Duration.ofSeconds(1L));
            return;
        }
        held.idleSinceMs = System.currentTimeMillis();
        synchronized (IDLE) {
            IDLE.addLast(held);
            if (closing == null) {
                closing = new IdleConsumers();
                closing.start();
            }
        }
    }

    /** Close what is idle for too long; the thread ends with the last consumer. */
    public void run() {
        while (true) {
            try {
                Thread.sleep(IDLE_MS / 4);
            } catch (InterruptedException stop) {
                return;
            }
            ArrayList old = new ArrayList();
            long before = System.currentTimeMillis() - IDLE_MS;
            synchronized (IDLE) {
                while (!IDLE.isEmpty() && ((Held) IDLE.peekFirst()).idleSinceMs < before) {
                    old.add(IDLE.pollFirst());
                }
                if (IDLE.isEmpty()) {
                    closing = null;
                }
            }
            for (int i = 0; i < old.size(); i++) {
                ((Held) old.get(i)).consumer.close(Duration.ofSeconds(1L));
            }
            synchronized (IDLE) {
                if (closing != this) {
                    return;
                }
            }
        }
    }
}
