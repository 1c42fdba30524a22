package spec

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/coracle-io/coracle/internal/podquery"
)

// Objects reads the objects that environments and volumes refer to. A missing
// object is a NotFound error of the API.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
}

// ErrConfig marks an environment that cannot be built because a referenced
// object or key is missing. The container waits with CreateContainerConfigError.
var ErrConfig = errors.New("container configuration")

// Env provides the parts of a container's environment that are not in its
// specification.
type Env struct {
	Objects     Objects
	Services    []*v1.Service // of the pod's namespace and default's kubernetes; any order
	PodIPs      []string
	HostIPs     []string
	Allocatable v1.ResourceList
	// File reads a key of an env file in one of the pod's volumes.
	File func(volume, path, key string) (value string, found bool, err error)
}

// Variable is one environment variable.
type Variable struct{ Name, Value string }

// Environment returns the container's environment in upstream's order: the
// variables of envFrom and env as declared, then the variables of services. It
// fails with ErrConfig once they exceed what a process can get.
func (e *Env) Environment(ctx context.Context, pod *v1.Pod, c *v1.Container) ([]Variable, error) {
	services, err := e.serviceVariables(pod)
	if err != nil {
		return nil, err
	}
	read := *e
	read.Objects = &readOnce{objects: e.Objects}
	out := &variables{index: map[string]int{}, limits: limitsOf(pod)}
	last := make(map[envSource]int, len(c.EnvFrom))
	for i := range c.EnvFrom {
		last[sourceOf(&c.EnvFrom[i])] = i
	}
	for i := range c.EnvFrom {
		if last[sourceOf(&c.EnvFrom[i])] != i {
			continue // all of it is replaced later
		}
		if err := read.from(ctx, pod, &c.EnvFrom[i], out); err != nil {
			return nil, err
		}
	}
	lookup := func(name string) (string, bool) {
		if value, ok := out.value(name); ok {
			return value, true
		}
		value, ok := services[name]
		return value, ok
	}
	for i := range c.Env {
		v := &c.Env[i]
		value, found := "", true
		if v.ValueFrom == nil {
			value, _, err = Expand(v.Value, lookup, maxString-variableSize(len(v.Name), 0))
			if errors.Is(err, ErrTooLong) {
				err = errStringTooLong(variable, v.Name)
			}
		} else {
			value, found, err = read.value(ctx, pod, c, v.ValueFrom)
		}
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		if err := out.put(v.Name, value); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(services)) {
		if _, ok := out.value(name); ok {
			continue
		}
		if err := out.put(name, services[name]); err != nil {
			return nil, fmt.Errorf("%w; set enableServiceLinks to false to leave out the variables of Services", err)
		}
	}
	return out.list, nil
}

func optional(b *bool) bool { return b != nil && *b }

// envSource is what two sources of an environment have in common that have the
// same variables.
type envSource struct {
	secret, optional bool
	name, prefix     string
}

func sourceOf(from *v1.EnvFromSource) envSource {
	switch {
	case from.ConfigMapRef != nil:
		return envSource{false, optional(from.ConfigMapRef.Optional), from.ConfigMapRef.Name, from.Prefix}
	case from.SecretRef != nil:
		return envSource{true, optional(from.SecretRef.Optional), from.SecretRef.Name, from.Prefix}
	}
	return envSource{}
}

// from adds the variables of an object, in the order of their names.
func (e *Env) from(ctx context.Context, pod *v1.Pod, from *v1.EnvFromSource, out *variables) error {
	switch {
	case from.ConfigMapRef != nil:
		cm, err := e.Objects.ConfigMap(ctx, pod.Namespace, from.ConfigMapRef.Name)
		if err != nil {
			return absent(err, optional(from.ConfigMapRef.Optional))
		}
		return addAll(out, from.Prefix, cm.Data)
	case from.SecretRef != nil:
		secret, err := e.Objects.Secret(ctx, pod.Namespace, from.SecretRef.Name)
		if err != nil {
			return absent(err, optional(from.SecretRef.Optional))
		}
		return addAll(out, from.Prefix, secret.Data)
	}
	return nil
}

// addAll adds the keys of an object that are names of variables.
func addAll[T string | []byte](out *variables, prefix string, data map[string]T) error {
	for _, key := range slices.Sorted(maps.Keys(data)) {
		name := prefix + key
		if len(validation.IsRelaxedEnvVarName(name)) > 0 {
			continue
		}
		if len(data[key]) > maxString { // before it is copied
			return errStringTooLong(variable, name)
		}
		if err := out.put(name, string(data[key])); err != nil {
			return err
		}
	}
	return nil
}

// absent returns nil for a missing object if optional, otherwise the error of
// the lookup.
func absent(err error, optional bool) error {
	if apierrors.IsNotFound(err) && optional {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrConfig, err)
}

func (e *Env) value(ctx context.Context, pod *v1.Pod, c *v1.Container, from *v1.EnvVarSource) (value string, found bool, err error) {
	switch {
	case from.FieldRef != nil:
		value, err = Field(pod, from.FieldRef.FieldPath, e.PodIPs, e.HostIPs)
		return value, true, configError(err)
	case from.ResourceFieldRef != nil:
		of := c
		if name := from.ResourceFieldRef.ContainerName; name != "" {
			if of = podquery.Container(&pod.Spec, name); of == nil {
				return "", false, fmt.Errorf("%w: container %s not found", ErrConfig, name)
			}
		}
		value, err = ResourceField(pod, of, from.ResourceFieldRef, e.Allocatable)
		return value, true, configError(err)
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		cm, err := e.Objects.ConfigMap(ctx, pod.Namespace, ref.Name)
		if err != nil {
			return "", false, absent(err, optional(ref.Optional))
		}
		value, ok := cm.Data[ref.Key]
		if !ok && !optional(ref.Optional) {
			return "", false, fmt.Errorf("%w: couldn't find key %v in ConfigMap %v/%v", ErrConfig, ref.Key, pod.Namespace, ref.Name)
		}
		return value, ok, nil
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		secret, err := e.Objects.Secret(ctx, pod.Namespace, ref.Name)
		if err != nil {
			return "", false, absent(err, optional(ref.Optional))
		}
		raw, ok := secret.Data[ref.Key]
		if !ok && !optional(ref.Optional) {
			return "", false, fmt.Errorf("%w: couldn't find key %v in Secret %v/%v", ErrConfig, ref.Key, pod.Namespace, ref.Name)
		}
		return string(raw), ok, nil
	case from.FileKeyRef != nil && e.File != nil:
		ref := from.FileKeyRef
		value, ok, err := e.File(ref.VolumeName, ref.Path, ref.Key)
		if err != nil {
			return "", false, fmt.Errorf("%w: env file %s in volume %s: %w", ErrConfig, ref.Path, ref.VolumeName, err)
		}
		if !ok && !optional(ref.Optional) {
			return "", false, fmt.Errorf("%w: couldn't find key %v in file %v of volume %v", ErrConfig, ref.Key, ref.Path, ref.VolumeName)
		}
		return value, ok, nil
	}
	return "", false, nil
}

func configError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrConfig, err)
}

// HasVariables reports whether containers have environment variables of a Service.
func HasVariables(s *v1.Service) bool {
	return s.Spec.ClusterIP != "" && s.Spec.ClusterIP != v1.ClusterIPNone
}

// serviceVariables returns the variables for the services that existed when the
// container started.
func (e *Env) serviceVariables(pod *v1.Pod) (map[string]string, error) {
	chosen := map[string]*v1.Service{}
	links := pod.Spec.EnableServiceLinks == nil || *pod.Spec.EnableServiceLinks
	for _, s := range e.Services {
		if !HasVariables(s) {
			continue
		}
		switch {
		case s.Namespace == pod.Namespace && links:
			chosen[s.Name] = s
		case s.Namespace == v1.NamespaceDefault && s.Name == "kubernetes" && chosen[s.Name] == nil:
			chosen[s.Name] = s
		}
	}
	out := map[string]string{}
	size := 0
	set := func(name, value string) {
		out[name] = value
		size += variableSize(len(name), len(value)) + stringCost
	}
	for name, s := range chosen {
		if len(s.Spec.Ports) == 0 {
			continue
		}
		addService(set, strings.ToUpper(strings.ReplaceAll(name, "-", "_")), s)
		if size > maxStrings {
			return nil, fmt.Errorf("%w: the Services of namespace %s have more environment variables than a process can get; set enableServiceLinks to false to leave them out", ErrConfig, pod.Namespace)
		}
	}
	return out, nil
}

// addService sets the variables of one service.
func addService(set func(name, value string), prefix string, s *v1.Service) {
	ip := s.Spec.ClusterIP
	set(prefix+"_SERVICE_HOST", ip)
	set(prefix+"_SERVICE_PORT", strconv.Itoa(int(s.Spec.Ports[0].Port)))
	for i, port := range s.Spec.Ports {
		number := strconv.Itoa(int(port.Port))
		if port.Name != "" {
			set(prefix+"_SERVICE_PORT_"+strings.ToUpper(strings.ReplaceAll(port.Name, "-", "_")), number)
		}
		protocol := string(port.Protocol)
		if protocol == "" {
			protocol = string(v1.ProtocolTCP)
		}
		url := strings.ToLower(protocol) + "://" + net.JoinHostPort(ip, number)
		if i == 0 {
			set(prefix+"_PORT", url)
		}
		link := prefix + "_PORT_" + number + "_" + strings.ToUpper(protocol)
		set(link, url)
		set(link+"_PROTO", strings.ToLower(protocol))
		set(link+"_PORT", number)
		set(link+"_ADDR", ip)
	}
}
