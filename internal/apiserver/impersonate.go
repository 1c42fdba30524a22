package apiserver

import (
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coracle-io/coracle/internal/apiserver/impersonation"
)

// impersonate sets the user of the request to the one in the headers
// Impersonate-User, -Group, -Uid and -Extra-*, if the sender may impersonate it.
// Without these headers it does nothing.
func (q *request) impersonate() error {
	wanted, err := impersonation.Requested(q.http.Header)
	if err != nil || wanted == nil {
		return err
	}
	end := q.measure(apirequest.TrackImpersonationLatency)
	identity, err := q.server.impersonation.Check(q.call.Context, wanted, q.call.Attributes())
	end()
	if err != nil {
		return err
	}
	q.call.User = identity.User
	q.audit.Impersonated(identity)
	return nil
}
