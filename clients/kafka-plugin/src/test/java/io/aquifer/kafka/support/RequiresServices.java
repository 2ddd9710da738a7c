package io.aquifer.kafka.support;

import java.lang.annotation.ElementType;
import java.lang.annotation.Inherited;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.extension.ExtensionContext;

/** Tests against running services: skipped with a reason where there are none, failing instead when {@code CI=true}. */
@Target(ElementType.TYPE)
@Inherited
@Retention(RetentionPolicy.RUNTIME)
@ExtendWith(RequiresServices.Condition.class)
public @interface RequiresServices {

    /** Looks for the endpoints. */
    class Condition implements ExecutionCondition {
        @Override
        public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
            if (Services.isConfigured()) {
                return ConditionEvaluationResult.enabled("services are given");
            }
            String reason = "needs running services; set " + Services.STORAGE + " and " + Services.METADATA + " to host:port";
            if ("true".equals(System.getenv("CI"))) {
                throw new IllegalStateException(reason);
            }
            return ConditionEvaluationResult.disabled(reason);
        }
    }
}
