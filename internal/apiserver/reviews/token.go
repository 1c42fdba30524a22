package reviews

import (
	"context"
	"errors"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

var (
	errNoTokens     = errors.New("no token authenticator is configured")
	errInvalidToken = errors.New("invalid bearer token")
)

// token answers a TokenReview.
func (v *Reviewer) token(ctx context.Context, r *authenticationv1.TokenReview) error {
	if r.Namespace != "" {
		return apierrors.NewBadRequest("namespace is not allowed on this type: " + r.Namespace)
	}
	if r.Spec.Token == "" {
		return apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	r.Status = v.tokenStatus(ctx, r.Spec)
	return nil
}

func (v *Reviewer) tokenStatus(ctx context.Context, spec authenticationv1.TokenReviewSpec) authenticationv1.TokenReviewStatus {
	if v.Tokens == nil {
		return authenticationv1.TokenReviewStatus{Error: errNoTokens.Error()}
	}
	audiences := authenticator.Audiences(spec.Audiences)
	if len(audiences) == 0 {
		audiences = v.Audiences
	}
	if len(audiences) > 0 {
		ctx = authenticator.WithAudiences(ctx, audiences)
	}
	found, ok, err := v.Tokens.AuthenticateToken(ctx, spec.Token)
	if err == nil && !ok {
		err = errInvalidToken
	}
	status := authenticationv1.TokenReviewStatus{Authenticated: ok}
	if err != nil {
		status.Error = err.Error()
	}
	if len(audiences) > 0 && found != nil && len(audiences.Intersect(found.Audiences)) == 0 {
		return authenticationv1.TokenReviewStatus{}
	}
	if found != nil && found.User != nil {
		status.User = userInfo(found.User)
		status.Audiences = found.Audiences
	}
	return status
}

func userInfo(u user.Info) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
	for k, v := range u.GetExtra() {
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[k] = v
	}
	return info
}
