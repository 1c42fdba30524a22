package core

import (
	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource/validators"
)

func validateServicePorts(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := map[string]bool{}
	ports := path.Child("ports")
	for i := range spec.Ports {
		errs = append(errs, validateServicePort(&spec.Ports[i], len(spec.Ports) > 1, names, ports.Index(i))...)
	}
	type portKey struct {
		protocol corev1.Protocol
		port     int32
		nodePort int32
	}
	seen, nodePorts := map[portKey]bool{}, map[portKey]bool{}
	for i := range spec.Ports {
		port := &spec.Ports[i]
		key := portKey{protocol: port.Protocol, port: port.Port}
		if seen[key] {
			errs = append(errs, field.Duplicate(ports.Index(i), validators.Shown(corev1.ServicePort{Protocol: key.protocol, Port: key.port})))
		}
		seen[key] = true
		if port.NodePort == 0 {
			continue
		}
		key = portKey{protocol: port.Protocol, nodePort: port.NodePort}
		if nodePorts[key] {
			errs = append(errs, field.Duplicate(ports.Index(i).Child("nodePort"), port.NodePort))
		}
		nodePorts[key] = true
		if spec.Type == corev1.ServiceTypeClusterIP {
			errs = append(errs, field.Forbidden(ports.Index(i).Child("nodePort"), "may not be used when `type` is 'ClusterIP'"))
		}
	}
	return errs
}

func validateServicePort(p *corev1.ServicePort, named bool, names map[string]bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if named && p.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	} else if p.Name != "" {
		errs = append(errs, validators.Label(path.Child("name"), p.Name)...)
		if names[p.Name] {
			errs = append(errs, field.Duplicate(path.Child("name"), p.Name))
		}
		names[p.Name] = true
	}
	errs = append(errs, validators.Problems(path.Child("port"), p.Port, utilvalidation.IsValidPortNum(int(p.Port)))...)
	if p.Protocol == "" {
		errs = append(errs, field.Required(path.Child("protocol"), ""))
	} else {
		errs = append(errs, validators.Protocol(path.Child("protocol"), p.Protocol)...)
	}
	errs = append(errs, validators.PortNumberOrName(path.Child("targetPort"), p.TargetPort)...)
	if p.AppProtocol != nil {
		errs = append(errs, validators.QualifiedName(path.Child("appProtocol"), *p.AppProtocol)...)
	}
	return errs
}
