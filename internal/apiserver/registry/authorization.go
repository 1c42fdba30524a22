package registry

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Authorize asks the authorizer. A refusal is a Forbidden error with
// upstream's message.
func (q *Request) Authorize(a *authorizer.AttributesRecord) error {
	decision, reason, err := q.Registry.Authorizer.Authorize(q.Context, a)
	return Refusal(a, decision, reason, err)
}

// Refusal converts a decision to an error, or to nil if the request is
// allowed.
func Refusal(a *authorizer.AttributesRecord, decision authorizer.Decision, reason string, err error) error {
	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case err != nil:
		return apierrors.NewInternalError(fmt.Errorf("authorize %s %s: %w", a.Verb, a.Path, err))
	}
	return forbidden(a, reason)
}

// Attributes returns the attributes of the request for authorizers.
func (q *Request) Attributes() *authorizer.AttributesRecord {
	a := &authorizer.AttributesRecord{
		User:            q.User,
		Verb:            q.Info.Verb,
		Namespace:       q.Info.Namespace,
		APIGroup:        q.Info.APIGroup,
		APIVersion:      q.Info.APIVersion,
		Resource:        q.Info.Resource,
		Subresource:     q.Info.Subresource,
		Name:            q.Info.Name,
		ResourceRequest: q.Info.IsResourceRequest,
		Path:            q.Info.Path,
	}
	if q.Info.FieldSelector != "" {
		if s, err := fields.ParseSelector(q.Info.FieldSelector); err != nil {
			a.FieldSelectorParsingErr = err
		} else if requirements := s.Requirements(); len(requirements) > 0 {
			a.FieldSelectorRequirements = requirements
		}
	}
	if q.Info.LabelSelector != "" {
		if s, err := labels.Parse(q.Info.LabelSelector); err != nil {
			a.LabelSelectorParsingErr = err
		} else if requirements, _ := s.Requirements(); len(requirements) > 0 {
			a.LabelSelectorRequirements = requirements
		}
	}
	return a
}

// notHTML escapes HTML in messages that contain client input.
var notHTML = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// forbidden returns the Forbidden error of a request:
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
