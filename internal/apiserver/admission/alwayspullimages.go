package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/podquery"
)

// alwaysPullImages sets the pull policy of all images of a pod to Always, so that
// a pod gets a private image only with credentials for it, also where another
// pod has pulled it.
type alwaysPullImages struct{ onWrite }

func (alwaysPullImages) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod := podWithNewImages(a)
	if pod == nil {
		return nil
	}
	for c := range podquery.AllContainers(&pod.Spec) {
		c.ImagePullPolicy = corev1.PullAlways
	}
	for _, v := range pod.Spec.Volumes {
		if v.Image != nil {
			v.Image.PullPolicy = corev1.PullAlways
		}
	}
	return nil
}

// Validate refuses other policies, which later plugins may have set.
func (alwaysPullImages) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod := podWithNewImages(a)
	if pod == nil {
		return nil
	}
	var errs []error
	check := func(path *field.Path, policy corev1.PullPolicy) {
		if policy != corev1.PullAlways {
			errs = append(errs, admission.NewForbidden(a, field.NotSupported(path, policy, []corev1.PullPolicy{corev1.PullAlways})))
		}
	}
	spec := field.NewPath("spec")
	for i, c := range pod.Spec.InitContainers {
		check(spec.Child("initContainers").Index(i).Child("imagePullPolicy"), c.ImagePullPolicy)
	}
	for i, c := range pod.Spec.Containers {
		check(spec.Child("containers").Index(i).Child("imagePullPolicy"), c.ImagePullPolicy)
	}
	for i, c := range pod.Spec.EphemeralContainers {
		check(spec.Child("ephemeralContainers").Index(i).Child("imagePullPolicy"), c.ImagePullPolicy)
	}
	for i, v := range pod.Spec.Volumes {
		if v.Image != nil {
			check(spec.Child("volumes").Index(i).Child("image", "pullPolicy"), v.Image.PullPolicy)
		}
	}
	return utilerrors.NewAggregate(errs)
}

// podWithNewImages returns the pod of a write that creates it or gives it an image
// that it did not have, or nil.
func podWithNewImages(a admission.Attributes) *corev1.Pod {
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || !is(a, "", "pods", "") {
		return nil
	}
	if old, ok := a.GetOldObject().(*corev1.Pod); ok && a.GetOperation() == admission.Update && images(old).IsSuperset(images(pod)) {
		return nil
	}
	return pod
}

func images(pod *corev1.Pod) sets.Set[string] {
	found := sets.New[string]()
	for c := range podquery.AllContainers(&pod.Spec) {
		found.Insert(c.Image)
	}
	for _, v := range pod.Spec.Volumes {
		if v.Image != nil {
			found.Insert(v.Image.Reference)
		}
	}
	return found
}
