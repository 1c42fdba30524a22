package serviceaccount

import (
	"encoding/json"
	"strings"

	"github.com/go-jose/go-jose/v4"

	"github.com/coracle-io/coracle/internal/pki"
)

// jwksPath is the path of the keys for relying parties.
const jwksPath = "/openid/v1/jwks"

// Discovery is the OpenID Connect document of /.well-known/openid-configuration.
type Discovery struct {
	Issuer        string   `json:"issuer"`
	JWKS          string   `json:"jwks_uri"`
	ResponseTypes []string `json:"response_types_supported"`
	SubjectTypes  []string `json:"subject_types_supported"`
	Algorithms    []string `json:"id_token_signing_alg_values_supported"`
}

// KeysDocument returns the JSON Web Key Set of /openid/v1/jwks, with all keys
// that verify tokens.
func (i *Issuer) KeysDocument() ([]byte, error) {
	var set jose.JSONWebKeySet
	for _, public := range i.o.Keys.Current().Verification {
		algorithm, err := pki.TokenAlgorithm(public)
		if err != nil {
			return nil, err
		}
		id, err := keyID(public)
		if err != nil {
			return nil, err
		}
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: public, KeyID: id, Algorithm: string(algorithm), Use: "sig"})
	}
	return json.Marshal(set)
}

// ConfigurationDocument returns the JSON of /.well-known/openid-configuration.
// If jwksURI is "", the keys are at the API server's external address or, if
// that is "", below the issuer's URL.
func (i *Issuer) ConfigurationDocument(jwksURI, externalAddress string) ([]byte, error) {
	if jwksURI == "" {
		jwksURI = "https://" + externalAddress + jwksPath
		if externalAddress == "" {
			jwksURI = strings.TrimSuffix(i.o.Issuers[0], "/") + jwksPath
		}
	}
	d := Discovery{
		Issuer:        i.o.Issuers[0],
		JWKS:          jwksURI,
		ResponseTypes: []string{"id_token"},
		SubjectTypes:  []string{"public"},
	}
	seen := map[string]bool{}
	for _, public := range i.o.Keys.Current().Verification {
		algorithm, err := pki.TokenAlgorithm(public)
		if err != nil {
			return nil, err
		}
		if !seen[string(algorithm)] {
			seen[string(algorithm)] = true
			d.Algorithms = append(d.Algorithms, string(algorithm))
		}
	}
	return json.Marshal(d)
}
