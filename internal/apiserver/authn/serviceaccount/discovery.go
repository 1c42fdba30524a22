package serviceaccount

import (
	"encoding/json"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// JWKSPath is where relying parties find the keys.
const JWKSPath = "/openid/v1/jwks"

// Discovery is the OpenID Connect document of /.well-known/openid-configuration.
type Discovery struct {
	Issuer        string   `json:"issuer"`
	JWKS          string   `json:"jwks_uri"`
	ResponseTypes []string `json:"response_types_supported"`
	SubjectTypes  []string `json:"subject_types_supported"`
	Algorithms    []string `json:"id_token_signing_alg_values_supported"`
}

// KeysDocument is the JSON of /openid/v1/jwks: all keys that verify tokens.
func (i *Issuer) KeysDocument() ([]byte, error) {
	var set jose.JSONWebKeySet
	for _, public := range i.o.Keys.Current().Verification {
		algorithm, err := algorithmOf(public)
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

// ConfigurationDocument is the JSON of /.well-known/openid-configuration.
// jwksURI may be "": the keys are then below the issuer's URL, or, if the
// issuer has none that serves them, at the API server's external address.
func (i *Issuer) ConfigurationDocument(jwksURI, externalAddress string) ([]byte, error) {
	if jwksURI == "" {
		jwksURI = "https://" + externalAddress + JWKSPath
		if externalAddress == "" {
			jwksURI = strings.TrimSuffix(i.o.Issuers[0], "/") + JWKSPath
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
		algorithm, err := algorithmOf(public)
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
