import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;

/** Prints the name of every property of Kafka's consumer and producer. */
public class ClientNames {
  public static void main(String[] arguments) {
    TreeSet<String> names = new TreeSet<>(ConsumerConfig.configNames());
    names.addAll(ProducerConfig.configNames());
    names.forEach(System.out::println);
  }
}
