package core

import (
	"crypto/tls"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/defaults"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// Secrets is the resource secrets.
func Secrets() *resource.Resource {
	return resource.Define(resource.Definition[corev1.Secret, *corev1.Secret]{
		GroupVersion: corev1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "Secret", Plural: "secrets"},
		Default:      defaultSecret,
		Strategy: resource.Strategy[*corev1.Secret]{
			PrepareForUpdate: func(_ *resource.RequestContext, s, old *corev1.Secret) {
				defaults.Zero(&s.Type, old.Type)
			},
			Validate:       validateSecret,
			ValidateUpdate: validateSecretUpdate,
			Warnings:       secretWarnings,
		},
		Table: resource.Table[*corev1.Secret]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Type", "string", corev1.Secret{}.SwaggerDoc()["type"]),
				resource.Column("Data", "string", corev1.Secret{}.SwaggerDoc()["data"]),
				resource.AgeColumn(),
			},
			Row: func(s *corev1.Secret, now time.Time) []any {
				return []any{s.Name, string(s.Type), int64(len(s.Data)), resource.Age(s.CreationTimestamp, now)}
			},
		},
		FieldSelectors: resource.FieldSelectors[*corev1.Secret]{
			SelectableFields: func(s *corev1.Secret) fields.Set { return fields.Set{"type": string(s.Type)} },
			Fields:           []string{"type"},
		},
	})
}

// defaultSecret sets the type and moves stringData, which is write-only, into
// data.
func defaultSecret(s *corev1.Secret) {
	defaults.Zero(&s.Type, corev1.SecretTypeOpaque)
	for key, value := range s.StringData {
		if s.Data == nil {
			s.Data = map[string][]byte{}
		}
		s.Data[key] = []byte(value)
	}
	s.StringData = nil
}

// secretWarnings warns of a key that does not fit the certificate next to it, and
// of either if it cannot be read.
func secretWarnings(_ *resource.RequestContext, s, _ *corev1.Secret) []string {
	if s.Type != corev1.SecretTypeTLS {
		return nil
	}
	if _, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]); err != nil {
		return []string{err.Error()}
	}
	return nil
}

func validateSecret(_ *resource.RequestContext, s *corev1.Secret) field.ErrorList {
	var errs field.ErrorList
	data, size := field.NewPath("data"), 0
	for key, value := range s.Data {
		for _, msg := range validation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(data.Key(key), key, msg))
		}
		size += len(value)
	}
	if size > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(data, "", corev1.MaxSecretSize))
	}
	return append(errs, validateSecretType(s, data)...)
}

// validateSecretType checks that the keys that the type requires are present.
func validateSecretType(s *corev1.Secret, data *field.Path) field.ErrorList {
	var errs field.ErrorList
	require := func(keys ...string) {
		for _, key := range keys {
			if _, ok := s.Data[key]; !ok {
				errs = append(errs, field.Required(data.Key(key), ""))
			}
		}
	}
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken:
		if s.Annotations[corev1.ServiceAccountNameKey] == "" {
			errs = append(errs, field.Required(
				field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey), ""))
		}
	case corev1.SecretTypeDockercfg:
		errs = validateJSONKey(s, data, corev1.DockerConfigKey)
	case corev1.SecretTypeDockerConfigJson:
		errs = validateJSONKey(s, data, corev1.DockerConfigJsonKey)
	case corev1.SecretTypeBasicAuth:
		_, username := s.Data[corev1.BasicAuthUsernameKey]
		_, password := s.Data[corev1.BasicAuthPasswordKey]
		if !username && !password {
			require(corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey)
		}
	case corev1.SecretTypeSSHAuth:
		if len(s.Data[corev1.SSHAuthPrivateKey]) == 0 {
			errs = append(errs, field.Required(data.Key(corev1.SSHAuthPrivateKey), ""))
		}
	case corev1.SecretTypeTLS:
		require(corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	}
	return errs
}

func validateJSONKey(s *corev1.Secret, data *field.Path, key string) field.ErrorList {
	value, ok := s.Data[key]
	if !ok {
		return field.ErrorList{field.Required(data.Key(key), "")}
	}
	if err := json.Unmarshal(value, &map[string]any{}); err != nil {
		return field.ErrorList{field.Invalid(data.Key(key), "<secret contents redacted>", err.Error())}
	}
	return nil
}

func validateSecretUpdate(_ *resource.RequestContext, s, old *corev1.Secret) field.ErrorList {
	errs := validators.ImmutableValue(field.NewPath("type"), s.Type, old.Type)
	if ptr.Deref(old.Immutable, false) {
		if !ptr.Deref(s.Immutable, false) {
			errs = append(errs, immutableWhenSet("immutable"))
		}
		if !resource.Equal(s.Data, old.Data) {
			errs = append(errs, immutableWhenSet("data"))
		}
	}
	return errs
}
