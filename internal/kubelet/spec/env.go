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
// variables of envFrom and env as declared, then the variables of services.
func (e *Env) Environment(ctx context.Context, pod *v1.Pod, c *v1.Container) ([]Variable, error) {
	services := e.serviceVariables(pod)
	known := maps.Clone(services)
	var out []Variable
	put := func(name, value string) {
		known[name] = value
		for i := range out {
			if out[i].Name == name {
				out[i].Value = value
				return
			}
		}
		out = append(out, Variable{name, value})
	}
	for _, from := range c.EnvFrom {
		values, err := e.from(ctx, pod, &from)
		if err != nil {
			return nil, err
		}
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if len(validation.IsRelaxedEnvVarName(from.Prefix+name)) == 0 {
				put(from.Prefix+name, values[name])
			}
		}
	}
	for i := range c.Env {
		v := &c.Env[i]
		if v.ValueFrom == nil {
			put(v.Name, expand(v.Value, known))
			continue
		}
		value, found, err := e.value(ctx, pod, c, v.ValueFrom)
		if err != nil {
			return nil, err
		}
		if found {
			put(v.Name, value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(services)) {
		if !slices.ContainsFunc(out, func(v Variable) bool { return v.Name == name }) {
			out = append(out, Variable{name, services[name]})
		}
	}
	return out, nil
}

func optional(b *bool) bool { return b != nil && *b }

func (e *Env) from(ctx context.Context, pod *v1.Pod, from *v1.EnvFromSource) (map[string]string, error) {
	values := map[string]string{}
	switch {
	case from.ConfigMapRef != nil:
		cm, err := e.Objects.ConfigMap(ctx, pod.Namespace, from.ConfigMapRef.Name)
		if err != nil {
			return nil, absent(err, optional(from.ConfigMapRef.Optional))
		}
		maps.Copy(values, cm.Data)
	case from.SecretRef != nil:
		secret, err := e.Objects.Secret(ctx, pod.Namespace, from.SecretRef.Name)
		if err != nil {
			return nil, absent(err, optional(from.SecretRef.Optional))
		}
		for k, v := range secret.Data {
			values[k] = string(v)
		}
	}
	return values, nil
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

// serviceVariables returns the variables for the services that existed when the
// container started.
func (e *Env) serviceVariables(pod *v1.Pod) map[string]string {
	chosen := map[string]*v1.Service{}
	links := pod.Spec.EnableServiceLinks == nil || *pod.Spec.EnableServiceLinks
	for _, s := range e.Services {
		if s.Spec.ClusterIP == "" || s.Spec.ClusterIP == v1.ClusterIPNone {
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
	for name, s := range chosen {
		if len(s.Spec.Ports) == 0 {
			continue
		}
		prefix := strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		ip := s.Spec.ClusterIP
		out[prefix+"_SERVICE_HOST"] = ip
		out[prefix+"_SERVICE_PORT"] = strconv.Itoa(int(s.Spec.Ports[0].Port))
		for i, port := range s.Spec.Ports {
			number := strconv.Itoa(int(port.Port))
			if port.Name != "" {
				out[prefix+"_SERVICE_PORT_"+strings.ToUpper(strings.ReplaceAll(port.Name, "-", "_"))] = number
			}
			protocol := string(port.Protocol)
			if protocol == "" {
				protocol = string(v1.ProtocolTCP)
			}
			url := strings.ToLower(protocol) + "://" + net.JoinHostPort(ip, number)
			if i == 0 {
				out[prefix+"_PORT"] = url
			}
			link := prefix + "_PORT_" + number + "_" + strings.ToUpper(protocol)
			out[link], out[link+"_PROTO"] = url, strings.ToLower(protocol)
			out[link+"_PORT"], out[link+"_ADDR"] = number, ip
		}
	}
	return out
}

// expand replaces $(NAME) by the value of the variable. $$ is an escaped $. A
// reference to an unknown variable stays as it is.
func expand(text string, values map[string]string) string {
	expanded, _ := ExpandKnown(text, values)
	return expanded
}

// ExpandKnown is like expand and also returns the unknown names, in the order of
// the text.
func ExpandKnown(text string, values map[string]string) (expanded string, unknown []string) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '$' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		switch text[i+1] {
		case '$':
			b.WriteByte('$')
			i++
		case '(':
			end := strings.IndexByte(text[i:], ')')
			if end < 0 {
				b.WriteString("$(")
				i++
				continue
			}
			name := text[i+2 : i+end]
			if value, ok := values[name]; ok {
				b.WriteString(value)
			} else {
				b.WriteString(text[i : i+end+1])
				unknown = append(unknown, name)
			}
			i += end
		default:
			b.WriteByte('$')
			b.WriteByte(text[i+1])
			i++
		}
	}
	return b.String(), unknown
}
