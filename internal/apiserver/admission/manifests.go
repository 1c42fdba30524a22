package admission

import (
	"bytes"
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/admission/initializer"
	policyconfig "k8s.io/apiserver/pkg/admission/plugin/policy/config"
	policymanifests "k8s.io/apiserver/pkg/admission/plugin/policy/manifest/loader"
	webhookconfig "k8s.io/apiserver/pkg/admission/plugin/webhook/config"
	webhookmanifests "k8s.io/apiserver/pkg/admission/plugin/webhook/manifest/loader"

	"github.com/coracle-io/coracle/internal/resource"
	definitions "github.com/coracle-io/coracle/internal/resource/admissionregistration"
)

// configureExtension checks the configuration of a plugin for webhooks or policies,
// and the objects in the directory that it names.
func configureExtension(plugin string, raw []byte) (Configuration, error) {
	c := Configuration{raw: raw}
	loaders := manifestLoaders()
	var load func(dir string) error
	switch plugin {
	case "MutatingAdmissionWebhook", "ValidatingAdmissionWebhook":
		read, err := webhookconfig.LoadConfig(bytes.NewReader(raw))
		if err != nil {
			return c, err
		}
		c.manifests = read.StaticManifestsDir
		load = func(dir string) (err error) {
			if plugin == "MutatingAdmissionWebhook" {
				_, _, err = loaders.LoadMutatingWebhookManifests(dir)
				return err
			}
			_, _, err = loaders.LoadValidatingWebhookManifests(dir)
			return err
		}
	case "MutatingAdmissionPolicy":
		read, err := policyconfig.LoadMutatingConfig(bytes.NewReader(raw))
		if err != nil {
			return c, err
		}
		c.manifests = read.StaticManifestsDir
		load = func(dir string) error {
			_, _, _, err := loaders.LoadMutatingPolicyManifests(dir)
			return err
		}
	case "ValidatingAdmissionPolicy":
		read, err := policyconfig.LoadValidatingConfig(bytes.NewReader(raw))
		if err != nil {
			return c, err
		}
		c.manifests = read.StaticManifestsDir
		load = func(dir string) error {
			_, _, _, err := loaders.LoadValidatingPolicyManifests(dir)
			return err
		}
	default:
		return c, errors.New("this plugin takes no configuration here")
	}
	if c.manifests == "" {
		return c, nil
	}
	return c, load(c.manifests)
}

// manifestLoaders returns functions that read objects from the files of a directory.
// The defaults and the rules of the API apply to them.
func manifestLoaders() *initializer.ManifestLoaders {
	return &initializer.ManifestLoaders{
		LoadValidatingWebhookManifests: func(dir string) ([]*admissionregistrationv1.ValidatingWebhookConfiguration, string, error) {
			return loadWebhooks[*admissionregistrationv1.ValidatingWebhookConfiguration](dir, definitions.ValidatingWebhookConfigurations())
		},
		LoadMutatingWebhookManifests: func(dir string) ([]*admissionregistrationv1.MutatingWebhookConfiguration, string, error) {
			return loadWebhooks[*admissionregistrationv1.MutatingWebhookConfiguration](dir, definitions.MutatingWebhookConfigurations())
		},
		LoadValidatingPolicyManifests: func(dir string) ([]*admissionregistrationv1.ValidatingAdmissionPolicy, []*admissionregistrationv1.ValidatingAdmissionPolicyBinding, string, error) {
			return loadPolicies[*admissionregistrationv1.ValidatingAdmissionPolicy](dir, definitions.ValidatingAdmissionPolicies(), definitions.ValidatingAdmissionPolicyBindings(),
				func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) string { return b.Spec.PolicyName })
		},
		LoadMutatingPolicyManifests: func(dir string) ([]*admissionregistrationv1.MutatingAdmissionPolicy, []*admissionregistrationv1.MutatingAdmissionPolicyBinding, string, error) {
			return loadPolicies[*admissionregistrationv1.MutatingAdmissionPolicy](dir, definitions.MutatingAdmissionPolicies(), definitions.MutatingAdmissionPolicyBindings(),
				func(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) string { return b.Spec.PolicyName })
		},
	}
}

func loadWebhooks[T resource.Object](dir string, r *resource.Resource) ([]T, string, error) {
	decoder, err := manifestDecoder()
	if err != nil {
		return nil, "", err
	}
	return webhookmanifests.LoadManifests[T](dir, decoder, accept[T](r))
}

func loadPolicies[P, B resource.Object](dir string, policies, bindings *resource.Resource, policyOf func(B) string) ([]P, []B, string, error) {
	decoder, err := manifestDecoder()
	if err != nil {
		return nil, nil, "", err
	}
	return policymanifests.LoadPolicyManifests[P, B](dir, decoder, accept[P](policies), accept[B](bindings), policyOf)
}

// manifestDecoder returns a decoder of the objects of admissionregistration.k8s.io/v1,
// and lists of them, that refuses unknown fields.
func manifestDecoder() (runtime.Decoder, error) {
	known := runtime.NewScheme()
	if err := admissionregistrationv1.AddToScheme(known); err != nil {
		return nil, fmt.Errorf("making a decoder of manifests: %w", err)
	}
	known.AddUnversionedTypes(metav1.Unversioned, &metav1.List{})
	return serializer.NewCodecFactory(known, serializer.EnableStrict).UniversalDeserializer(), nil
}

// accept returns a function that takes a decoded object of a kind, or a list of
// them.
func accept[T resource.Object](r *resource.Resource) func(obj runtime.Object) ([]T, error) {
	return func(obj runtime.Object) ([]T, error) {
		items := []runtime.Object{obj}
		if meta.IsListType(obj) {
			var err error
			if items, err = meta.ExtractList(obj); err != nil {
				return nil, err
			}
		}
		found := make([]T, 0, len(items))
		for _, item := range items {
			one, ok := item.(T)
			if !ok {
				return nil, policymanifests.ErrUnrecognizedType
			}
			r.Hub().Default(one)
			if err := resource.ValidateCreate(r, &resource.RequestContext{}, one).ToAggregate(); err != nil {
				return nil, err
			}
			found = append(found, one)
		}
		return found, nil
	}
}
