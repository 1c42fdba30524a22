package apiserver

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coracle-io/coracle/internal/metrics"
)

// authorize asks whether the user may do this.
func (q *request) authorize() error {
	a := q.attributes()
	decision, reason, err := q.server.Authorizer.Authorize(q.ctx, a)
	q.server.Metrics.Access.Authorized(authorizationResult(decision, err), q.server.Clock.Since(q.now)-q.recognised)
	if q.audit != nil {
		q.recordDecision(decision, reason, err)
	}
	return q.refusal(a, decision, reason, err)
}

// authorizationResult names a decision as metrics do.
func authorizationResult(decision authorizer.Decision, err error) string {
	switch {
	case decision == authorizer.DecisionAllow:
		return metrics.Allowed
	case err != nil:
		return metrics.Failed
	case decision == authorizer.DecisionDeny:
		return metrics.Denied
	}
	return metrics.NoOpinion
}

// allowed asks for one decision; a refusal is Forbidden in upstream's words.
func (q *request) allowed(a *authorizer.AttributesRecord) error {
	decision, reason, err := q.server.Authorizer.Authorize(q.ctx, a)
	return q.refusal(a, decision, reason, err)
}

// refusal is what a decision means for the request: nil if it may go on.
func (q *request) refusal(a *authorizer.AttributesRecord, decision authorizer.Decision, reason string, err error) error {
	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case err != nil:
		return apierrors.NewInternalError(fmt.Errorf("authorize %s %s: %w", a.Verb, q.info.Path, err))
	}
	return forbidden(a, reason)
}

func (q *request) attributes() *authorizer.AttributesRecord {
	a := &authorizer.AttributesRecord{
		User:            q.user,
		Verb:            q.info.Verb,
		Namespace:       q.info.Namespace,
		APIGroup:        q.info.APIGroup,
		APIVersion:      q.info.APIVersion,
		Resource:        q.info.Resource,
		Subresource:     q.info.Subresource,
		Name:            q.info.Name,
		ResourceRequest: q.info.IsResourceRequest,
		Path:            q.info.Path,
	}
	if q.info.FieldSelector != "" {
		if s, err := fields.ParseSelector(q.info.FieldSelector); err != nil {
			a.FieldSelectorParsingErr = err
		} else if requirements := s.Requirements(); len(requirements) > 0 {
			a.FieldSelectorRequirements = requirements
		}
	}
	if q.info.LabelSelector != "" {
		if s, err := labels.Parse(q.info.LabelSelector); err != nil {
			a.LabelSelectorParsingErr = err
		} else if requirements, _ := s.Requirements(); len(requirements) > 0 {
			a.LabelSelectorRequirements = requirements
		}
	}
	return a
}

// notHTML keeps what a client sent from looking like HTML in a message.
var notHTML = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// forbidden says what was refused:
//
//	pods is forbidden: User "x" cannot list resource "pods" in API group "" in the namespace "y"
func forbidden(a authorizer.Attributes, reason string) error {
	name := ""
	if u := a.GetUser(); u != nil {
		name = u.GetName()
	}
	var message string
	if !a.IsResourceRequest() {
		message = fmt.Sprintf("User %q cannot %s path %q", name, a.GetVerb(), a.GetPath())
	} else {
		resource := a.GetResource()
		if a.GetSubresource() != "" {
			resource += "/" + a.GetSubresource()
		}
		scope := "at the cluster scope"
		if a.GetNamespace() != "" {
			scope = fmt.Sprintf("in the namespace %q", a.GetNamespace())
		}
		message = fmt.Sprintf("User %q cannot %s resource %q in API group %q %s", name, a.GetVerb(), resource, a.GetAPIGroup(), scope)
	}
	message = notHTML.Replace(message)
	if reason != "" {
		message += ": " + reason
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: a.GetAPIGroup(), Resource: a.GetResource()}, a.GetName(), fmt.Errorf("%s", message))
}
