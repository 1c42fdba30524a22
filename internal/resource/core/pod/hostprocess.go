package pod

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateHostProcess checks HostProcess pods on Windows: all containers or
// none are host processes, and such pods use the host network. forbidden means
// that the cluster allows no privileged containers.
func validateHostProcess(spec *corev1.PodSpec, forbidden bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	var pod *bool
	if s := spec.SecurityContext; s != nil && s.WindowsOptions != nil {
		pod = s.WindowsOptions.HostProcess
	}
	onHost, all := 0, 0
	eachContainer(spec, path, func(c *corev1.Container, at *field.Path) {
		all++
		var own *bool
		if s := c.SecurityContext; s != nil && s.WindowsOptions != nil {
			own = s.WindowsOptions.HostProcess
		}
		if pod != nil && own != nil && *pod != *own {
			errs = append(errs, field.Invalid(at.Child("securityContext", "windowsOptions", "hostProcess"), *own,
				fmt.Sprintf("pod hostProcess value must be identical if both are specified, was %v", *pod)))
		}
		if own != nil && *own || own == nil && pod != nil && *pod {
			onHost++
		}
	})
	if onHost == 0 {
		return errs
	}
	if onHost != all {
		errs = append(errs, field.Invalid(path, "",
			"If pod contains any hostProcess containers then all containers must be HostProcess containers"))
	}
	if !spec.HostNetwork {
		errs = append(errs, field.Invalid(path.Child("hostNetwork"), spec.HostNetwork,
			"hostNetwork must be true if pod contains any hostProcess containers"))
	}
	if forbidden {
		errs = append(errs, field.Forbidden(path, "hostProcess containers are disallowed by cluster policy"))
	}
	return errs
}
