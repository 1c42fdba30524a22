package apiserver

import "github.com/coracle-io/coracle/internal/apiserver/impersonation"

// impersonate lets a user who may speak for somebody else do so, by the
// Impersonate-User, -Group, -Uid and -Extra-* headers.
func (q *request) impersonate() error {
	wanted, err := impersonation.Wanted(q.http.Header)
	if err != nil || wanted == nil {
		return err
	}
	identity, err := q.server.impersonation.Check(q.Context, wanted, q.Attributes())
	if err != nil {
		return err
	}
	q.User = identity.User
	q.audit.Impersonated(identity)
	return nil
}
