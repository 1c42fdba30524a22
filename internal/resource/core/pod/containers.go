package pod

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

func pullPolicies() []corev1.PullPolicy {
	return []corev1.PullPolicy{corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever}
}

func terminationMessagePolicies() []corev1.TerminationMessagePolicy {
	return []corev1.TerminationMessagePolicy{
		corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError,
	}
}

// containerRules checks the containers of a pod.
type containerRules struct {
	*specContext
	volumes   map[string]*corev1.VolumeSource // the valid volumes by name
	resources *resourceRules
}

func (r *containerRules) validateContainers(path *field.Path) field.ErrorList {
	if len(r.spec.Containers) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	names := map[string]bool{}
	for i := range r.spec.Containers {
		c, at := &r.spec.Containers[i], path.Index(i)
		errs = append(errs, r.validateContainer(c, at)...)
		if names[c.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		}
		names[c.Name] = true
		errs = append(errs, r.validateLifecycle(c.Lifecycle, at.Child("lifecycle"))...)
		errs = append(errs, validateLivenessProbe(c.LivenessProbe, at.Child("livenessProbe"))...)
		errs = append(errs, validateReadinessProbe(c.ReadinessProbe, at.Child("readinessProbe"))...)
		errs = append(errs, validateStartupProbe(c.StartupProbe, at.Child("startupProbe"))...)
		errs = append(errs, r.validateContainerRestartPolicy(c, false, at)...)
	}
	return append(errs, validateHostPorts(r.spec.Containers, path)...)
}

// validateHostPorts finds host ports that these containers use more than once.
func validateHostPorts(containers []corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i := range containers {
		for j, p := range containers[i].Ports {
			if p.HostPort == 0 {
				continue
			}
			key := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort)
			if seen[key] {
				errs = append(errs, field.Duplicate(path.Index(i).Child("ports").Index(j).Child("hostPort"), key))
			}
			seen[key] = true
		}
	}
	return errs
}

// validateInitContainers checks init containers. Only those that restart
// (sidecars) can have probes and hooks.
func (r *containerRules) validateInitContainers(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := map[string]bool{}
	for i := range r.spec.Containers {
		names[r.spec.Containers[i].Name] = true
	}
	for i := range r.spec.InitContainers {
		c, at := &r.spec.InitContainers[i], path.Index(i)
		errs = append(errs, r.validateContainer(c, at)...)
		if names[c.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		}
		names[c.Name] = names[c.Name] || c.Name != ""
		errs = append(errs, r.validateContainerRestartPolicy(c, true, at)...)
		errs = append(errs, validateHostPorts([]corev1.Container{*c}, path)...)
		if podquery.IsSidecar(c) {
			errs = append(errs, r.validateLifecycle(c.Lifecycle, at.Child("lifecycle"))...)
			errs = append(errs, validateLivenessProbe(c.LivenessProbe, at.Child("livenessProbe"))...)
			errs = append(errs, validateReadinessProbe(c.ReadinessProbe, at.Child("readinessProbe"))...)
			errs = append(errs, validateStartupProbe(c.StartupProbe, at.Child("startupProbe"))...)
			continue
		}
		for _, part := range []struct {
			name string
			set  bool
		}{
			{"lifecycle", c.Lifecycle != nil},
			{"livenessProbe", c.LivenessProbe != nil},
			{"readinessProbe", c.ReadinessProbe != nil},
			{"startupProbe", c.StartupProbe != nil},
		} {
			if part.set {
				errs = append(errs, field.Forbidden(at.Child(part.name), "may not be set for init containers without restartPolicy=Always"))
			}
		}
		if restartsToResize(c) && !r.RestartsInit {
			errs = append(errs, field.Invalid(at.Child("resizePolicy"), validators.Shown(c.ResizePolicy),
				"must not have the restart policy RestartContainer for init containers without restartPolicy=Always"))
		}
	}
	return errs
}

// validateContainer checks what containers of all kinds share.
func (r *containerRules) validateContainer(c *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	} else {
		errs = append(errs, validators.Label(path.Child("name"), c.Name)...)
	}
	if c.Image == "" {
		errs = append(errs, field.Required(path.Child("image"), ""))
	} else if r.metadata != nil && c.Image != strings.TrimSpace(c.Image) {
		errs = append(errs, field.Invalid(path.Child("image"), c.Image, "must not have leading or trailing whitespace"))
	}
	switch c.TerminationMessagePolicy {
	case corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError:
	case "":
		errs = append(errs, field.Required(path.Child("terminationMessagePolicy"), ""))
	default:
		errs = append(errs, field.NotSupported(path.Child("terminationMessagePolicy"), c.TerminationMessagePolicy, terminationMessagePolicies()))
	}
	errs = append(errs, validateContainerPorts(c.Ports, path.Child("ports"))...)
	errs = append(errs, r.validateEnv(c.Env, path.Child("env"))...)
	errs = append(errs, validateEnvFrom(c.EnvFrom, path.Child("envFrom"))...)
	errs = append(errs, r.validateMounts(c, path.Child("volumeMounts"))...)
	errs = append(errs, r.validateDevices(c, path.Child("volumeDevices"))...)
	errs = append(errs, validatePullPolicy(c.ImagePullPolicy, path.Child("imagePullPolicy"))...)
	errs = append(errs, r.resources.validateResources(&c.Resources, path.Child("resources"))...)
	errs = append(errs, r.resources.validateResizePolicy(c, path.Child("resizePolicy"))...)
	return append(errs, r.validateContainerSecurity(c.SecurityContext, path.Child("securityContext"))...)
}

func validatePullPolicy(policy corev1.PullPolicy, path *field.Path) field.ErrorList {
	if policy == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return validators.Enum(path, policy, pullPolicies()...)
}

func validateContainerPorts(ports []corev1.ContainerPort, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := map[string]bool{}
	for i := range ports {
		p, at := &ports[i], path.Index(i)
		if p.Name != "" {
			messages := utilvalidation.IsValidPortName(p.Name)
			errs = append(errs, validators.Problems(at.Child("name"), p.Name, messages)...)
			if len(messages) == 0 && names[p.Name] {
				errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
			}
			names[p.Name] = true
		}
		if p.ContainerPort == 0 {
			errs = append(errs, field.Required(at.Child("containerPort"), ""))
		} else {
			errs = append(errs, validators.Problems(at.Child("containerPort"), p.ContainerPort, utilvalidation.IsValidPortNum(int(p.ContainerPort)))...)
		}
		if p.HostPort != 0 {
			errs = append(errs, validators.Problems(at.Child("hostPort"), p.HostPort, utilvalidation.IsValidPortNum(int(p.HostPort)))...)
		}
		if p.Protocol == "" {
			errs = append(errs, field.Required(at.Child("protocol"), ""))
		} else {
			errs = append(errs, validators.Protocol(at.Child("protocol"), p.Protocol)...)
		}
	}
	return errs
}

func (r *containerRules) validateContainerRestartPolicy(c *corev1.Container, init bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	policy, rules := c.RestartPolicy, c.RestartPolicyRules
	at := path.Child("restartPolicy")
	if policy != nil {
		errs = append(errs, validators.Enum(at, *policy, corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure)...)
	}
	if len(rules) == 0 {
		return errs
	}
	list := path.Child("restartPolicyRules")
	switch {
	case policy == nil:
		errs = append(errs, field.Required(at, "must specify restartPolicy when restart rules are used"))
	case *policy == corev1.ContainerRestartPolicyAlways && init && !r.RestartAll:
		errs = append(errs, field.Forbidden(list, "restartPolicyRules are not allowed for init containers with restart policy Always"))
	}
	const mostRules, mostCodes = 20, 255
	if len(rules) > mostRules {
		errs = append(errs, field.TooLong(list, rules, mostRules))
	}
	actions := []corev1.ContainerRestartRuleAction{corev1.ContainerRestartRuleActionRestart}
	if r.RestartAll {
		actions = append(actions, corev1.ContainerRestartRuleActionRestartAllContainers)
	}
	for i := range rules {
		restart, at := &rules[i], list.Index(i)
		errs = append(errs, validators.Enum(at.Child("action"), restart.Action, actions...)...)
		if restart.ExitCodes == nil {
			errs = append(errs, field.Required(at.Child("exitCodes"), "must be specified"))
			continue
		}
		codes := at.Child("exitCodes")
		errs = append(errs, validators.Enum(codes.Child("operator"), restart.ExitCodes.Operator,
			corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn)...)
		if len(restart.ExitCodes.Values) > mostCodes {
			errs = append(errs, field.TooLong(codes.Child("values"), restart.ExitCodes.Values, mostCodes))
		}
	}
	return errs
}
