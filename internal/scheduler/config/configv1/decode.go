// Package configv1 reads KubeSchedulerConfiguration of
// kubescheduler.config.k8s.io/v1, the file of kube-scheduler's --config.
//
//	file ──Decode──► v1 ──SetDefaults──► v1 ──Validate──► v1 ──Convert──► config.Configuration
//	                                      └──Encode──► /configz, --write-config-to
//
// The messages are kube-scheduler's.
package configv1

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	kubescheduler "k8s.io/kube-scheduler/config/v1"
)

const kind = "KubeSchedulerConfiguration"

// codec returns the strict serializer of the API group.
func codec() (*json.Serializer, error) {
	scheme := runtime.NewScheme()
	if err := kubescheduler.AddToScheme(scheme); err != nil {
		return nil, err
	}
	return json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true}), nil
}

// Decode reads a configuration in YAML or JSON, without defaults. The error
// lists all unknown and duplicate fields, including fields of arguments.
func Decode(data []byte) (*kubescheduler.KubeSchedulerConfiguration, error) {
	c, err := codec()
	if err != nil {
		return nil, err
	}
	obj, gvk, err := c.Decode(data, nil, nil)
	if err != nil && !runtime.IsStrictDecodingError(err) {
		return nil, err
	}
	cfg, ok := obj.(*kubescheduler.KubeSchedulerConfiguration)
	if !ok {
		return nil, fmt.Errorf("couldn't decode as %s, got %s", kind, gvk)
	}
	strict := strictErrors(err)
	if err := cfg.DecodeNestedObjects(c); err != nil {
		if !runtime.IsStrictDecodingError(err) {
			return nil, err
		}
		strict = append(strict, strictErrors(err)...)
	}
	if len(strict) > 0 {
		return nil, runtime.NewStrictDecodingError(strict)
	}
	return cfg, nil
}

// DecodeArguments reads arguments of plugins that are still text. Their apiVersion and
// kind may be left out. Those of plugins that have no kind of this API group stay text;
// Convert reads them. The error lists all unknown fields.
func DecodeArguments(configs []kubescheduler.PluginConfig) error {
	c, err := codec()
	if err != nil {
		return err
	}
	var errs []error
	for i := range configs {
		p := &configs[i]
		if len(p.Args.Raw) == 0 {
			continue
		}
		kind := kubescheduler.SchemeGroupVersion.WithKind(p.Name + "Args")
		arguments, got, err := c.Decode(p.Args.Raw, &kind, nil)
		switch {
		case runtime.IsNotRegisteredError(err) && got != nil && *got == kind:
		case err != nil:
			errs = append(errs, fmt.Errorf("pluginConfig[%d]: decoding args for plugin %s: %w", i, p.Name, err))
		case got.GroupKind() != kind.GroupKind():
			errs = append(errs, fmt.Errorf("pluginConfig[%d]: args for plugin %s were not of type %s, got %s", i, p.Name, kind.GroupKind(), got.GroupKind()))
		default:
			p.Args.Object = arguments
		}
	}
	return errors.Join(errs...)
}

func strictErrors(err error) []error {
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		return strict.Errors()
	}
	return nil
}

// Encode returns the configuration as YAML.
func Encode(cfg *kubescheduler.KubeSchedulerConfiguration) ([]byte, error) {
	c, err := codec()
	if err != nil {
		return nil, err
	}
	out := cfg.DeepCopy()
	out.SetGroupVersionKind(kubescheduler.SchemeGroupVersion.WithKind(kind))
	for i := range out.Profiles {
		for _, p := range out.Profiles[i].PluginConfig {
			if p.Args.Object != nil {
				p.Args.Object.GetObjectKind().SetGroupVersionKind(kubescheduler.SchemeGroupVersion.WithKind(p.Name + "Args"))
			}
		}
	}
	data, err := runtime.Encode(c, out)
	return data, errors.Join(err, out.EncodeNestedObjects(c))
}
