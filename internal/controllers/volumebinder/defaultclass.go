package volumebinder

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/storage/volume"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/defaultclass"
)

// assignDefaultClass sets the default class on a claim without a class
// (KEP-3333), and reports whether it did. Such a claim was created before there
// was a default class. A claim with the class "" is not changed.
func (c *binder) assignDefaultClass(ctx context.Context, claim *v1.PersistentVolumeClaim) (bool, error) {
	if volume.PersistentVolumeClaimHasClass(claim) {
		return false, nil
	}
	classes, err := c.classes.List(labels.Everything())
	if err != nil {
		return false, err
	}
	class := defaultclass.Storage(slices.Values(classes))
	if class == nil {
		return false, nil
	}
	next := claim.DeepCopy()
	next.Spec.StorageClassName = &class.Name
	_, err = c.kube.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, next, metav1.UpdateOptions{})
	return err == nil, controller.IgnoreNotFound(err)
}
