package crd_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An unused definition costs little memory.
func TestCostOfADefinition(t *testing.T) {
	const definitions, limit = 100, 200 << 10
	c := start(t)
	c.define(boats)
	before := heap()
	began := time.Now()
	for i := range definitions {
		c.create(numbered(t, i))
	}
	for i := range definitions {
		c.await(fmt.Sprintf("boats%d.example.com", i), func(crd *apiextensionsv1.CustomResourceDefinition) bool {
			return apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established)
		})
	}
	t.Logf("%d definitions established in %s", definitions, time.Since(began))
	each := (heap() - before) / definitions
	for late := time.Now().Add(patience); each > limit && time.Now().Before(late); { // what other goroutines hold for a moment
		each = (heap() - before) / definitions
	}
	t.Logf("%d kB each", each>>10)
	if each > limit {
		t.Errorf("a definition costs %d kB, more than %d", each>>10, limit>>10)
	}
	began = time.Now()
	for i := range definitions {
		if err := c.definitions.ApiextensionsV1().CustomResourceDefinitions().Delete(t.Context(), fmt.Sprintf("boats%d.example.com", i), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range definitions {
		c.await(fmt.Sprintf("boats%d.example.com", i), func(crd *apiextensionsv1.CustomResourceDefinition) bool { return crd == nil })
	}
	t.Logf("deleted in %s", time.Since(began))
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func numbered(t *testing.T, i int) *apiextensionsv1.CustomResourceDefinition {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	decode(t, strings.ReplaceAll(boats, "boats", fmt.Sprint("boats", i)), crd)
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: fmt.Sprint("boats", i), Kind: fmt.Sprint("Boat", i)}
	return crd
}
