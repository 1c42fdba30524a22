package apiserver

import (
	"net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	listvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/apiserver/status"
	"github.com/coracle-io/coracle/internal/feature"
)

// The functions below read the options of a verb from the query. Values that
// cannot be parsed are BadRequest, and forbidden combinations are Invalid.

func createOptions(query url.Values) (*metav1.CreateOptions, error) {
	o := &metav1.CreateOptions{
		TypeMeta:        metav1.TypeMeta{Kind: "CreateOptions", APIVersion: "meta.k8s.io/v1"},
		DryRun:          query["dryRun"],
		FieldManager:    query.Get("fieldManager"),
		FieldValidation: query.Get("fieldValidation"),
	}
	if len(query) == 0 {
		return o, nil
	}
	return o, status.InvalidOptions("CreateOptions", metavalidation.ValidateCreateOptions(o))
}

func updateOptions(query url.Values) (*metav1.UpdateOptions, error) {
	o := &metav1.UpdateOptions{
		TypeMeta:        metav1.TypeMeta{Kind: "UpdateOptions", APIVersion: "meta.k8s.io/v1"},
		DryRun:          query["dryRun"],
		FieldManager:    query.Get("fieldManager"),
		FieldValidation: query.Get("fieldValidation"),
	}
	if len(query) == 0 {
		return o, nil
	}
	return o, status.InvalidOptions("UpdateOptions", metavalidation.ValidateUpdateOptions(o))
}

func patchOptions(query url.Values, patchType types.PatchType) (*metav1.PatchOptions, error) {
	o := &metav1.PatchOptions{
		TypeMeta:        metav1.TypeMeta{Kind: "PatchOptions", APIVersion: "meta.k8s.io/v1"},
		DryRun:          query["dryRun"],
		FieldManager:    query.Get("fieldManager"),
		FieldValidation: query.Get("fieldValidation"),
		Force:           optionalBool(query["force"]),
	}
	return o, status.InvalidOptions("PatchOptions", metavalidation.ValidatePatchOptions(o, patchType))
}

func optionalBool(values []string) *bool {
	if len(values) == 0 {
		return nil
	}
	b := isTrue(values[0])
	return &b
}

func optionalInt(values []string) (*int64, error) {
	if len(values) == 0 {
		return nil, nil
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return &n, nil
}

// deleteOptions reads the options of a DELETE from its query.
func deleteOptions(query url.Values) (*metav1.DeleteOptions, error) {
	o := &metav1.DeleteOptions{DryRun: query["dryRun"]}
	var err error
	if o.GracePeriodSeconds, err = optionalInt(query["gracePeriodSeconds"]); err != nil {
		return nil, err
	}
	o.OrphanDependents = optionalBool(query["orphanDependents"]) //nolint:staticcheck // deprecated, yet clients still send it
	if policy := query["propagationPolicy"]; len(policy) > 0 {
		p := metav1.DeletionPropagation(policy[0])
		o.PropagationPolicy = &p
	}
	if uid := query["uid"]; len(uid) > 0 {
		u := types.UID(uid[0])
		o.Preconditions = &metav1.Preconditions{UID: &u}
	}
	o.IgnoreStoreReadErrorWithClusterBreakingPotential = optionalBool(query["ignoreStoreReadErrorWithClusterBreakingPotential"])
	return o, nil
}

// listOptions reads the options of a list, a watch or a deletecollection. The name of
// the request, if it has one, narrows it to one object.
func listOptions(query url.Values, watch bool, call *registry.Request) (*internalversion.ListOptions, error) {
	o := &internalversion.ListOptions{
		Watch:                watch,
		ResourceVersion:      query.Get("resourceVersion"),
		ResourceVersionMatch: metav1.ResourceVersionMatch(query.Get("resourceVersionMatch")),
		Continue:             query.Get("continue"),
		AllowWatchBookmarks:  len(query["allowWatchBookmarks"]) > 0 && isTrue(query["allowWatchBookmarks"][0]),
		SendInitialEvents:    optionalBool(query["sendInitialEvents"]),
	}
	limit, err := optionalInt(query["limit"])
	if err != nil {
		return nil, err
	}
	if limit != nil {
		o.Limit = *limit
	}
	if o.TimeoutSeconds, err = optionalInt(query["timeoutSeconds"]); err != nil {
		return nil, err
	}
	if o.LabelSelector, err = labelSelector(query.Get("labelSelector")); err != nil {
		return nil, err
	}
	if o.FieldSelector, err = fieldSelector(query.Get("fieldSelector"), call.Endpoint); err != nil {
		return nil, err
	}
	watchList := call.Registry.Features.Enabled(feature.WatchList)
	internalversion.SetListOptionsDefaults(o, watchList)
	if errs := listvalidation.ValidateListOptions(o, watchList); len(errs) > 0 {
		return nil, status.InvalidOptions("ListOptions", errs)
	}
	return o, narrowToName(o, call.Info.Name)
}

func narrowToName(o *internalversion.ListOptions, name string) error {
	if name == "" {
		return nil
	}
	if o.FieldSelector != nil && !o.FieldSelector.Empty() {
		if selected, ok := o.FieldSelector.RequiresExactMatch("metadata.name"); !ok || selected != name {
			return apierrors.NewBadRequest("fieldSelector metadata.name doesn't match requested name")
		}
		return nil
	}
	o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name)
	return nil
}

func labelSelector(text string) (labels.Selector, error) {
	if text == "" {
		return nil, nil
	}
	s, err := labels.Parse(text)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return s, nil
}

func fieldSelector(text string, e *registry.Endpoint) (fields.Selector, error) {
	if text == "" {
		return nil, nil
	}
	s, err := fields.ParseSelector(text)
	if err == nil {
		s, err = s.Transform(func(label, value string) (string, string, error) {
			field, err := e.FieldLabel(label)
			return field, value, err
		})
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return s, nil
}

// selectedName returns the name that a field selector requires, if any.
func selectedName(selector string) (string, bool) {
	s, err := fields.ParseSelector(selector)
	if err != nil {
		return "", false
	}
	return s.RequiresExactMatch("metadata.name")
}
