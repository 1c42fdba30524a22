// Package legacytoken has what the API server and the controllers must agree on
// about the tokens of service accounts that are stored in secrets.
package legacytoken

// Issuer is the issuer of all tokens in secrets. They are valid for the API
// server's own audiences and never expire.
const Issuer = "kubernetes/serviceaccount"

// Labels of the secrets (KEP-2799). Their values are dates (RFC 3339) in UTC,
// which can be compared as strings.
const (
	// LastUsed is the day on which the token was last used.
	LastUsed = "kubernetes.io/legacy-token-last-used"
	// InvalidSince says that the token is no longer accepted. Removing the label
	// allows the token again.
	InvalidSince = "kubernetes.io/legacy-token-invalid-since"
)
