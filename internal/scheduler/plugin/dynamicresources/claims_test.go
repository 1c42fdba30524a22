package dynamicresources

import (
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// interleaved is an indexer that calls between after every reading of claims.
type interleaved struct {
	cache.Indexer
	between func()
}

func (i *interleaved) List() []any {
	defer i.between()
	return i.Indexer.List()
}

func (i *interleaved) GetByKey(key string) (any, bool, error) {
	defer i.between()
	return i.Indexer.GetByKey(key)
}

func (i *interleaved) ByIndex(index, value string) ([]any, error) {
	defer i.between()
	return i.Indexer.ByIndex(index, value)
}

// An allocation counts although the informer shows it, and a queueing hint
// looks at it, just after a decision has read the claim's older version.
func TestAllocationIsSeenWhileTheInformerCatchesUp(t *testing.T) {
	owner := &metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "web"}
	version := func(revision string, allocated bool) *resourceapi.ResourceClaim {
		c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "c", UID: "c", ResourceVersion: revision,
			Annotations:     map[string]string{resourceapi.ExtendedResourceClaimAnnotation: "true"},
			OwnerReferences: []metav1.OwnerReference{{UID: "web", Controller: ptr.To(true)}},
		}}
		if allocated {
			c.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
				Results: []resourceapi.DeviceRequestAllocationResult{{Driver: "d", Pool: "p", Device: "gpu-0"}},
			}}
		}
		return c
	}
	for name, sees := range map[string]func(c *claims) bool{
		"allocated": func(c *claims) bool { return c.allocated(false).AllocatedDevices.Len() == 1 },
		"get": func(c *claims) bool {
			claim, err := c.get("shop", "c")
			return err == nil && claim.Status.Allocation != nil
		},
		"extendedOf": func(c *claims) bool {
			claim := c.extendedOf(owner)
			return claim != nil && claim.Status.Allocation != nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
			if err := indexer.Add(version("10", false)); err != nil {
				t.Fatal(err)
			}
			c := newClaims(indexer)
			c.wrote("c", version("11", true))
			read := false
			c.indexer = &interleaved{indexer, func() {
				if read {
					return
				}
				read = true
				if err := indexer.Update(version("11", true)); err != nil {
					t.Error(err)
				}
				if c.mu.TryLock() { // otherwise a hint would wait here
					c.mu.Unlock()
					_, _ = c.get("shop", "c")
				}
			}}
			if !sees(c) || !read {
				t.Error("the allocation does not count")
			}
		})
	}
}
