package podquery

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Restarts reports whether a container that exited with a code is restarted: by
// its own rules and policy (KEP-5307), otherwise by the policy of the pod.
func Restarts(spec *v1.PodSpec, c *v1.Container, exitCode int32) bool {
	if RestartRule(c, exitCode) != nil {
		return true
	}
	policy := spec.RestartPolicy
	if c.RestartPolicy != nil {
		policy = v1.RestartPolicy(*c.RestartPolicy)
	}
	switch policy {
	case v1.RestartPolicyNever:
		return false
	case v1.RestartPolicyOnFailure:
		return exitCode != 0
	}
	return true
}

// RestartRule returns the first rule of a container that matches an exit code, or
// nil.
func RestartRule(c *v1.Container, exitCode int32) *v1.ContainerRestartRule {
	for i := range c.RestartPolicyRules {
		rule := &c.RestartPolicyRules[i]
		if rule.ExitCodes == nil {
			continue
		}
		in := slices.Contains(rule.ExitCodes.Values, exitCode)
		if in == (rule.ExitCodes.Operator == v1.ContainerRestartRuleOnExitCodesOpIn) {
			return rule
		}
	}
	return nil
}
