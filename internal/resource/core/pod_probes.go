package core

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validateLivenessProbe(p *corev1.Probe, path *field.Path) field.ErrorList {
	return append(validateProbe(p, path), validateOneSuccess(p, path)...)
}

func validateStartupProbe(p *corev1.Probe, path *field.Path) field.ErrorList {
	return append(validateProbe(p, path), validateOneSuccess(p, path)...)
}

func validateReadinessProbe(p *corev1.Probe, path *field.Path) field.ErrorList {
	errs := validateProbe(p, path)
	if p != nil && p.TerminationGracePeriodSeconds != nil {
		errs = append(errs, field.Invalid(path.Child("terminationGracePeriodSeconds"), p.TerminationGracePeriodSeconds,
			"must not be set for readinessProbes"))
	}
	return errs
}

func validateOneSuccess(p *corev1.Probe, path *field.Path) field.ErrorList {
	if p == nil || p.SuccessThreshold == 1 {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child("successThreshold"), p.SuccessThreshold, "must be 1")}
}

func validateProbe(p *corev1.Probe, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := validateHandler(handler{exec: p.Exec, httpGet: p.HTTPGet, tcpSocket: p.TCPSocket, grpc: p.GRPC}, path)
	for _, number := range []struct {
		name  string
		value int32
	}{
		{"initialDelaySeconds", p.InitialDelaySeconds},
		{"timeoutSeconds", p.TimeoutSeconds},
		{"periodSeconds", p.PeriodSeconds},
		{"successThreshold", p.SuccessThreshold},
		{"failureThreshold", p.FailureThreshold},
	} {
		errs = append(errs, nonnegative(int64(number.value), path.Child(number.name))...)
	}
	if grace := p.TerminationGracePeriodSeconds; grace != nil && *grace <= 0 {
		errs = append(errs, field.Invalid(path.Child("terminationGracePeriodSeconds"), *grace, "must be greater than 0"))
	}
	return errs
}

func (r *podRules) validateLifecycle(l *corev1.Lifecycle, path *field.Path) field.ErrorList {
	if l == nil {
		return nil
	}
	var errs field.ErrorList
	for _, hook := range []struct {
		name string
		h    *corev1.LifecycleHandler
	}{{"postStart", l.PostStart}, {"preStop", l.PreStop}} {
		if h := hook.h; h != nil {
			errs = append(errs, validateHandler(handler{
				exec: h.Exec, httpGet: h.HTTPGet, tcpSocket: h.TCPSocket, sleep: h.Sleep, grace: r.spec.TerminationGracePeriodSeconds,
			}, path.Child(hook.name))...)
		}
	}
	return errs
}

// validateSleep: a hook may not sleep longer than the pod has to stop.
func validateSleep(s *corev1.SleepAction, grace *int64, path *field.Path) field.ErrorList {
	if grace == nil || s.Seconds >= 0 && s.Seconds <= *grace {
		return nil
	}
	return field.ErrorList{field.Invalid(path, s.Seconds,
		fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", *grace))}
}

// handler is what probes and hooks have in common: one of these.
type handler struct {
	exec      *corev1.ExecAction
	httpGet   *corev1.HTTPGetAction
	tcpSocket *corev1.TCPSocketAction
	grpc      *corev1.GRPCAction
	sleep     *corev1.SleepAction
	grace     *int64 // how long sleep may last
}

func validateHandler(h handler, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	found := false
	one := func(set bool, name string, check func(*field.Path) field.ErrorList) {
		switch {
		case !set:
		case found:
			errs = append(errs, field.Forbidden(path.Child(name), "may not specify more than 1 handler type"))
		default:
			found = true
			errs = append(errs, check(path.Child(name))...)
		}
	}
	one(h.exec != nil, "exec", func(path *field.Path) field.ErrorList {
		if len(h.exec.Command) == 0 {
			return field.ErrorList{field.Required(path.Child("command"), "")}
		}
		return nil
	})
	one(h.httpGet != nil, "httpGet", func(path *field.Path) field.ErrorList { return validateHTTPGet(h.httpGet, path) })
	one(h.tcpSocket != nil, "tcpSocket", func(path *field.Path) field.ErrorList {
		return validatePortNumberOrName(h.tcpSocket.Port, path.Child("port"))
	})
	one(h.grpc != nil, "grpc", func(path *field.Path) field.ErrorList {
		return invalid(path.Child("port"), h.grpc.Port, utilvalidation.IsValidPortNum(int(h.grpc.Port)))
	})
	one(h.sleep != nil, "sleep", func(path *field.Path) field.ErrorList { return validateSleep(h.sleep, h.grace, path) })
	if !found {
		errs = append(errs, field.Required(path, "must specify a handler type"))
	}
	return errs
}

func validateHTTPGet(get *corev1.HTTPGetAction, path *field.Path) field.ErrorList {
	errs := required(get.Path, path.Child("path"))
	errs = append(errs, validatePortNumberOrName(get.Port, path.Child("port"))...)
	errs = append(errs, oneOf(get.Scheme, path.Child("scheme"), corev1.URISchemeHTTP, corev1.URISchemeHTTPS)...)
	for _, header := range get.HTTPHeaders {
		errs = append(errs, invalid(path.Child("httpHeaders"), header.Name, utilvalidation.IsHTTPHeaderName(header.Name))...)
	}
	return errs
}

// hasDotDot reports whether a path climbs.
func hasDotDot(path string) bool {
	for _, part := range strings.Split(path, "/") {
		if part == ".." {
			return true
		}
	}
	return false
}
