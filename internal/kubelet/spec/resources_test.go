package spec

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestPageSizesOutOfRange checks that names of huge pages whose size takes hours
// to compute with are left out.
func TestPageSizesOutOfRange(t *testing.T) {
	found := hugePages(v1.ResourceList{
		"hugepages-1e900000000": resource.MustParse("1"), "hugepages-1e-900000000": resource.MustParse("1"), "hugepages-2Mi": resource.MustParse("4Mi"),
	})
	if len(found) != 1 || found[0].GetPageSize() != "2MB" || found[0].GetLimit() != 4<<20 {
		t.Errorf("%v", found)
	}
}
