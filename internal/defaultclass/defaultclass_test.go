package defaultclass_test

import (
	"slices"
	"testing"
	"time"

	networking "k8s.io/api/networking/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/defaultclass"
)

// meta is a class of an age in minutes, with an annotation.
func meta(name string, age int, annotation, value string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, CreationTimestamp: metav1.NewTime(time.Unix(0, 0).Add(-time.Duration(age) * time.Minute)),
		Annotations: map[string]string{annotation: value},
	}
}

func TestDefaultIsTheNewestThenTheFirstByName(t *testing.T) {
	const storageMark, beta, ingressMark = "storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class", "ingressclass.kubernetes.io/is-default-class"
	for name, test := range map[string]struct {
		classes []metav1.ObjectMeta // of both kinds
		storage string
		ingress string
	}{
		"no class":         {nil, "", ""},
		"none is marked":   {[]metav1.ObjectMeta{meta("a", 1, "other", "true"), meta("b", 1, storageMark, "false"), meta("c", 1, ingressMark, "false")}, "", ""},
		"the newest":       {[]metav1.ObjectMeta{meta("a", 3, storageMark, "true"), meta("b", 1, beta, "true"), meta("c", 2, storageMark, "true")}, "b", ""},
		"of the same age":  {[]metav1.ObjectMeta{meta("b", 1, ingressMark, "true"), meta("a", 1, ingressMark, "true"), meta("c", 1, ingressMark, "true")}, "", "a"},
		"for each its own": {[]metav1.ObjectMeta{meta("a", 1, storageMark, "true"), meta("b", 2, ingressMark, "true")}, "a", "b"},
	} {
		t.Run(name, func(t *testing.T) {
			var storages []*storage.StorageClass
			var ingresses []*networking.IngressClass
			for _, m := range test.classes {
				storages = append(storages, &storage.StorageClass{ObjectMeta: m})
				ingresses = append(ingresses, &networking.IngressClass{ObjectMeta: m})
			}
			var gotStorage, gotIngress string
			if c := defaultclass.Storage(slices.Values(storages)); c != nil {
				gotStorage = c.Name
			}
			if c := defaultclass.Ingress(slices.Values(ingresses)); c != nil {
				gotIngress = c.Name
			}
			if gotStorage != test.storage || gotIngress != test.ingress {
				t.Errorf("storage %q and ingress %q, want %q and %q", gotStorage, gotIngress, test.storage, test.ingress)
			}
		})
	}
}
