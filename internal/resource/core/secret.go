package core

import (
	"crypto/tls"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"encoding/pem"
	"math/big"
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
// of either if it cannot be read. It does not read keys that are too large.
func secretWarnings(_ *resource.RequestContext, s, _ *corev1.Secret) []string {
	if s.Type != corev1.SecretTypeTLS || tooLarge(s.Data[corev1.TLSPrivateKeyKey]) {
		return nil
	}
	if _, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]); err != nil {
		return []string{err.Error()}
	}
	return nil
}

// The largest private key that secretWarnings reads, in bytes of its encoding, and the
// largest of its primes. An RSA key of 8192 bits has both, and crypto/tls refuses
// larger ones.
const (
	maxKeySize   = 8 << 10
	maxPrimeBits = 4096
)

// tooLarge reports whether there is a key in PEM that may take long to read. For an RSA
// key without the values that follow from its primes, crypto/x509 raises a number to a
// power as large as the first prime, before it compares the prime with the rest of the
// key. A prime of hundreds of kilobytes takes years.
func tooLarge(key []byte) bool {
	for block, rest := pem.Decode(key); block != nil; block, rest = pem.Decode(rest) {
		if len(block.Bytes) > maxKeySize || hasLargePrime(block.Bytes) {
			return true
		}
	}
	return false
}

// hasLargePrime reports whether an encoded RSA key, in PKCS #1 or in PKCS #8, has a
// prime of more than maxPrimeBits.
func hasLargePrime(encoded []byte) bool {
	var wrapped struct {
		Version   int
		Algorithm pkix.AlgorithmIdentifier
		Key       []byte
	}
	if _, err := asn1.Unmarshal(encoded, &wrapped); err == nil {
		encoded = wrapped.Key
	}
	var key struct {
		Version        int
		Modulus        *big.Int
		PublicExponent int
		Exponent, P, Q *big.Int
	}
	_, err := asn1.Unmarshal(encoded, &key)
	return err == nil && max(key.P.BitLen(), key.Q.BitLen()) > maxPrimeBits
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
