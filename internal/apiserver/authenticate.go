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

// authenticate finds out who sent the request. A user in the request's
// context was put there inside the process and is trusted.
func (q *request) authenticate() error {
	if u, ok := apirequest.UserFrom(q.Context); ok {
		q.User = u
		return nil
	}
	r := q.http
	_, bearer := r.Header["Authorization"]
	_, protocol := r.Header["Sec-Websocket-Protocol"]
	if (bearer || protocol) && len(q.server.Audiences) > 0 {
		ctx := warning.WithWarningRecorder(r.Context(), &q.warnings)
		r = r.WithContext(authenticator.WithAudiences(ctx, q.server.Audiences))
	}
	response, ok, err := q.server.Authenticator.AuthenticateRequest(r)
	if protocol {
		q.http.Header = r.Header
	}
	if err != nil || !ok {
		result := metrics.Failure
		if err != nil {
			result = metrics.Failed
			klog.FromContext(q.Context).V(2).Info("Unable to authenticate the request", "err", err.Error())
		}
		q.authenticated(result, "")
		q.closeUnauthenticated()
		return apierrors.NewUnauthorized("Unauthorized")
	}
	q.User = response.User
	q.authenticated(metrics.Success, q.User.GetName())
	if q.User.GetName() == user.Anonymous {
		q.closeUnauthenticated()
	} else if !httpserver.Known(r.Context(), q.User) {
		q.w.Header().Set("Connection", "close")
		return apierrors.NewTooManyRequests(httpserver.TooMany, 1)
	}
	q.server.Credentials.Strip(q.http.Header)
	return nil
}

// authenticated counts the attempt, which began with the request.
func (q *request) authenticated(result, name string) {
	q.recognised = q.server.Clock.Since(q.Now)
	q.server.Metrics.Access.Authenticated(result, name, q.recognised)
}

// closeUnauthenticated ends an HTTP/2 connection after this request: nobody
// unknown keeps one open (CVE-2023-44487).
func (q *request) closeUnauthenticated() {
	if q.http.ProtoMajor == 2 {
		q.w.Header().Set("Connection", "close")
	}
}
