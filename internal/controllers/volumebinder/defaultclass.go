package volumebinder

import (
	"context"

	v1 "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

const (
	isDefaultClass     = "storageclass.kubernetes.io/is-default-class"
	betaIsDefaultClass = "storageclass.beta.kubernetes.io/is-default-class"
)

// defaultClass returns the class of claims that name none: of those marked as
// default the newest, of equally old ones the first by name. Nil for none.
func defaultClass(classes []*storage.StorageClass) *storage.StorageClass {
	var chosen *storage.StorageClass
	for _, class := range classes {
		if class.Annotations[isDefaultClass] != "true" && class.Annotations[betaIsDefaultClass] != "true" {
			continue
		}
		if chosen == nil || chosen.CreationTimestamp.Before(&class.CreationTimestamp) ||
			chosen.CreationTimestamp.Equal(&class.CreationTimestamp) && class.Name < chosen.Name {
			chosen = class
		}
	}
	return chosen
}

// assignDefaultClass gives a claim that was made before there was a default
// class that class (KEP-3333), and says whether it did. A claim of the class
// "" wants none.
func (c *binder) assignDefaultClass(ctx context.Context, claim *v1.PersistentVolumeClaim) (bool, error) {
	if _, named := claim.Annotations[storageClassByName]; named || claim.Spec.StorageClassName != nil {
		return false, nil
	}
	classes, err := c.classes.List(labels.Everything())
	if err != nil {
		return false, err
	}
	class := defaultClass(classes)
	if class == nil {
		return false, nil
	}
	next := claim.DeepCopy()
	next.Spec.StorageClassName = &class.Name
	_, err = c.kube.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, next, metav1.UpdateOptions{})
	return err == nil, ignoreNotFound(err)
}
