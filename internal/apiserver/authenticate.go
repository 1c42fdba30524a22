package apiserver

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/httpserver"
	"github.com/coracle-io/coracle/internal/metrics"
)

// authenticate determines the user of the request. It trusts a user in the
// request's context, which only code in this process can set.
func (q *request) authenticate() error {
	if u, ok := apirequest.UserFrom(q.call.Context); ok {
		q.call.User = u
		return nil
	}
	r := q.http
	_, bearer := r.Header["Authorization"]
	_, protocol := r.Header["Sec-Websocket-Protocol"]
	if (bearer || protocol) && len(q.server.access.Audiences) > 0 {
		ctx := warning.WithWarningRecorder(r.Context(), &q.response.warnings)
		r = r.WithContext(authenticator.WithAudiences(ctx, q.server.access.Audiences))
	}
	response, ok, err := q.server.access.Authenticator.AuthenticateRequest(r)
	if protocol {
		q.http.Header = r.Header
	}
	if err != nil || !ok {
		result := metrics.Failure
		if err != nil {
			result = metrics.Failed
			klog.FromContext(q.call.Context).V(2).Info("Unable to authenticate the request", "err", err.Error())
		}
		q.authenticated(result, "")
		q.response.closeUnauthenticated()
		return apierrors.NewUnauthorized("Unauthorized")
	}
	q.call.User = response.User
	q.authenticated(metrics.Success, q.call.User.GetName())
	if q.call.User.GetName() == user.Anonymous {
		q.response.closeUnauthenticated()
	} else if !httpserver.MarkAuthenticated(r.Context(), q.call.User) {
		q.response.w.Header().Set("Connection", "close")
		return apierrors.NewTooManyRequests(httpserver.TooManyConnections, 1)
	}
	q.server.access.Credentials.Strip(q.http.Header)
	return nil
}

// authenticated counts an authentication attempt, whose latency is since the
// start of the request.
func (q *request) authenticated(result, name string) {
	q.authenticatedAfter = q.server.registry.Clock.Since(q.call.Now)
	if q.audit != nil {
		apirequest.TrackAuthenticationLatency(q.call.Context, q.authenticatedAfter)
	}
	q.server.registry.Metrics.Access.Authenticated(result, name, q.authenticatedAfter)
}
