package registry

import (
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/storage"

	"github.com/coracle-io/coracle/internal/watchcache"
)

// A continue token has upstream's format:
// {"v":"meta.k8s.io/v1","rv":7,"start":"default/web\u0000"} in base64. start
// is the key below the listed prefix at which the next page begins. rv -1
// means the latest revision.

// tokenPrefix replaces the storage prefix, which tokens never contain.
const tokenPrefix = "/"

// decodeToken returns the revision of a token and the position after which
// its page begins.
func decodeToken(token, namespace string) (watchcache.Position, int64, error) {
	key, revision, err := storage.DecodeContinue(token, tokenPrefix)
	if err != nil {
		return watchcache.Position{}, 0, apierrors.NewBadRequest("invalid continue token: " + err.Error())
	}
	start := strings.TrimSuffix(strings.TrimPrefix(key, tokenPrefix), "\x00")
	if namespace != "" {
		return watchcache.Position{Namespace: namespace, Name: start}, revision, nil
	}
	if ns, name, ok := strings.Cut(start, "/"); ok {
		return watchcache.Position{Namespace: ns, Name: name}, revision, nil
	}
	return watchcache.Position{Name: start}, revision, nil
}

// encodeToken returns the token of the page after a position.
func encodeToken(last watchcache.Position, namespace string, revision int64) (string, error) {
	start := last.Name
	if namespace == "" && last.Namespace != "" {
		start = last.Namespace + "/" + last.Name
	}
	return storage.EncodeContinue(tokenPrefix+start+"\x00", tokenPrefix, revision)
}

// Messages of expired lists.
const (
	listExpired      = "The resourceVersion for the provided list is too old."
	continueExpired  = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list."
	errRevisionGiven = "specifying resource version is not allowed when using continue"
)

// errContinueExpired returns an error with a token that continues at the
// latest revision.
func errContinueExpired(after watchcache.Position, namespace string) error {
	err := apierrors.NewResourceExpired(continueExpired)
	if token, tokenErr := encodeToken(after, namespace, -1); tokenErr == nil {
		err.ErrStatus.Continue = token
	}
	return err
}
