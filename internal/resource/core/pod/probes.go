package pod

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource/validators"
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
		errs = append(errs, validators.Nonnegative(path.Child(number.name), int64(number.value))...)
	}
	if grace := p.TerminationGracePeriodSeconds; grace != nil && *grace <= 0 {
		errs = append(errs, field.Invalid(path.Child("terminationGracePeriodSeconds"), *grace, "must be greater than 0"))
	}
	return errs
}

func (r *containerRules) validateLifecycle(l *corev1.Lifecycle, path *field.Path) field.ErrorList {
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
	if l.StopSignal != nil {
		errs = append(errs, validateStopSignal(*l.StopSignal, r.spec.OS, path.Child("stopSignal"))...)
	}
	return errs
}

// validateStopSignal checks the signal that stops a container. The operating
// system decides which signals exist, so the pod has to name it.
func validateStopSignal(signal corev1.Signal, os *corev1.PodOS, path *field.Path) field.ErrorList {
	switch {
	case os == nil || os.Name == "":
		return field.ErrorList{field.Forbidden(path, "may not be set for containers with empty `spec.os.name`")}
	case os.Name == corev1.Windows:
		return validators.Enum(path, signal, corev1.SIGKILL, corev1.SIGTERM)
	}
	return validators.Enum(path, signal, stopSignals()...)
}

// stopSignals returns the signals of Linux.
func stopSignals() []corev1.Signal {
	const names = "ABRT ALRM BUS CHLD CLD CONT FPE HUP ILL INT IO IOT KILL PIPE POLL PROF PWR QUIT SEGV STKFLT STOP SYS TERM " +
		"TRAP TSTP TTIN TTOU URG USR1 USR2 VTALRM WINCH XCPU XFSZ RTMIN RTMAX"
	const aboveLeast, belowMost = 15, 14 // the real-time signals between RTMIN and RTMAX
	var signals []corev1.Signal
	for _, name := range strings.Fields(names) {
		signals = append(signals, corev1.Signal("SIG"+name))
	}
	for i := range aboveLeast {
		signals = append(signals, corev1.Signal(fmt.Sprintf("%s+%d", corev1.SIGRTMIN, i+1)))
	}
	for i := range belowMost {
		signals = append(signals, corev1.Signal(fmt.Sprintf("%s-%d", corev1.SIGRTMAX, i+1)))
	}
	return signals
}

// validateSleep checks a sleep hook. It cannot exceed the grace period.
func validateSleep(s *corev1.SleepAction, grace *int64, path *field.Path) field.ErrorList {
	if grace == nil || s.Seconds >= 0 && s.Seconds <= *grace {
		return nil
	}
	return field.ErrorList{field.Invalid(path, s.Seconds,
		fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", *grace))}
}

// handler has the actions of probes and hooks. One of them is set.
type handler struct {
	exec      *corev1.ExecAction
	httpGet   *corev1.HTTPGetAction
	tcpSocket *corev1.TCPSocketAction
	grpc      *corev1.GRPCAction
	sleep     *corev1.SleepAction
	grace     *int64 // the upper limit of sleep, in seconds
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
		return validators.PortNumberOrName(path.Child("port"), h.tcpSocket.Port)
	})
	one(h.grpc != nil, "grpc", func(path *field.Path) field.ErrorList {
		return validators.Problems(path.Child("port"), h.grpc.Port, utilvalidation.IsValidPortNum(int(h.grpc.Port)))
	})
	one(h.sleep != nil, "sleep", func(path *field.Path) field.ErrorList { return validateSleep(h.sleep, h.grace, path) })
	if !found {
		errs = append(errs, field.Required(path, "must specify a handler type"))
	}
	return errs
}

func validateHTTPGet(get *corev1.HTTPGetAction, path *field.Path) field.ErrorList {
	errs := validators.Required(path.Child("path"), get.Path)
	errs = append(errs, validators.PortNumberOrName(path.Child("port"), get.Port)...)
	errs = append(errs, validators.Enum(path.Child("scheme"), get.Scheme, corev1.URISchemeHTTP, corev1.URISchemeHTTPS)...)
	for _, header := range get.HTTPHeaders {
		errs = append(errs, validators.Problems(path.Child("httpHeaders"), header.Name, utilvalidation.IsHTTPHeaderName(header.Name))...)
	}
	return errs
}
