package io.aquifer.kafka.telemetry;

import java.lang.management.ManagementFactory;
import java.util.Map;
import java.util.function.Supplier;
import javax.management.Attribute;
import javax.management.AttributeList;
import javax.management.AttributeNotFoundException;
import javax.management.DynamicMBean;
import javax.management.InstanceAlreadyExistsException;
import javax.management.JMException;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanInfo;
import javax.management.MBeanServer;
import javax.management.ObjectName;

/** Numbers of one manager in JMX, named {@code io.aquifer.kafka:type=<manager>,broker=<id>}. */
final class JmxBean implements DynamicMBean, AutoCloseable {
    private static final int MOST_OF_A_NAME = 100;

    private final Supplier<Map<String, Long>> numbers;
    private final MBeanServer server = ManagementFactory.getPlatformMBeanServer();
    private ObjectName name;

    private JmxBean(Supplier<Map<String, Long>> numbers) {
        this.numbers = numbers;
    }

    /** Registers a bean; the second of its name in this JVM also has {@code instance=2}, and so on. */
    static JmxBean register(String type, String brokerId, Supplier<Map<String, Long>> numbers) {
        JmxBean bean = new JmxBean(numbers);
        String base = "io.aquifer.kafka:type=" + type + ",broker=" + brokerId.replaceAll("[^A-Za-z0-9._-]", "_");
        for (int instance = 1; instance <= MOST_OF_A_NAME && bean.name == null; instance++) {
            bean.tryName(instance == 1 ? base : base + ",instance=" + instance);
        }
        return bean;
    }

    private void tryName(String text) {
        try {
            ObjectName wanted = new ObjectName(text);
            server.registerMBean(this, wanted);
            name = wanted;
        } catch (InstanceAlreadyExistsException error) {
            // The next number is tried.
        } catch (JMException error) {
            throw new IllegalStateException("JMX refused " + text, error);
        }
    }

    @Override
    public Object getAttribute(String attribute) throws AttributeNotFoundException {
        Long value = numbers.get().get(attribute);
        if (value == null) {
            throw new AttributeNotFoundException(attribute);
        }
        return value;
    }

    @Override
    public AttributeList getAttributes(String[] attributes) {
        Map<String, Long> all = numbers.get();
        AttributeList list = new AttributeList();
        for (String each : attributes) {
            if (all.containsKey(each)) {
                list.add(new Attribute(each, all.get(each)));
            }
        }
        return list;
    }

    @Override
    public MBeanInfo getMBeanInfo() {
        MBeanAttributeInfo[] infos = numbers.get().keySet().stream()
                .map(each -> new MBeanAttributeInfo(each, "long", each, true, false, false))
                .toArray(MBeanAttributeInfo[]::new);
        return new MBeanInfo(JmxBean.class.getName(), "Numbers of an Aquifer manager", infos, null, null, null);
    }

    @Override
    public void setAttribute(Attribute attribute) throws AttributeNotFoundException {
        throw new AttributeNotFoundException("numbers are read only");
    }

    @Override
    public AttributeList setAttributes(AttributeList attributes) {
        return new AttributeList();
    }

    @Override
    public Object invoke(String actionName, Object[] params, String[] signature) {
        throw new UnsupportedOperationException("there are no operations");
    }

    @Override
    public void close() {
        if (name == null) {
            return;
        }
        try {
            server.unregisterMBean(name);
        } catch (JMException error) {
            // Gone already.
        }
        name = null;
    }
}
