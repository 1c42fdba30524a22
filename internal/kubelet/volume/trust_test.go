package volume

import (
	"context"
	"encoding/pem"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/kubelet/files"
)

type bundles []*certificatesv1.ClusterTrustBundle

func (b bundles) TrustBundles(context.Context) ([]*certificatesv1.ClusterTrustBundle, error) {
	return b, nil
}

// bundle is a trust bundle whose certificates are only names.
func bundle(name, signer, ring string, certificates ...string) *certificatesv1.ClusterTrustBundle {
	b := &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"ring": ring}}}
	b.Spec.SignerName = signer
	for _, c := range certificates {
		b.Spec.TrustBundle += "text between\n" + string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(c)}))
	}
	return b
}

func TestTrustBundles(t *testing.T) {
	const signer = "example.com/ca"
	server := bundles{
		bundle("alone", "", "", "own"),
		bundle("example.com:ca:a", signer, "live", "one", "two"),
		bundle("example.com:ca:b", signer, "live", "two", "three"),
		bundle("example.com:ca:c", signer, "old", "four"),
		bundle("example.com:other:a", "example.com/other", "live", "five"),
	}
	text := func(s string) *string { return &s }
	yes := true
	live := &metav1.LabelSelector{MatchLabels: map[string]string{"ring": "live"}}
	for name, c := range map[string]struct {
		source v1.ClusterTrustBundleProjection
		want   []string
		fault  string
	}{
		"by name":           {v1.ClusterTrustBundleProjection{Name: text("alone")}, []string{"own"}, ""},
		"by signer":         {v1.ClusterTrustBundleProjection{SignerName: text(signer), LabelSelector: live}, []string{"one", "three", "two"}, ""},
		"all of a signer":   {v1.ClusterTrustBundleProjection{SignerName: text(signer), LabelSelector: &metav1.LabelSelector{}}, []string{"four", "one", "three", "two"}, ""},
		"no selector":       {v1.ClusterTrustBundleProjection{SignerName: text(signer)}, nil, "matched zero ClusterTrustBundles"},
		"no such name":      {v1.ClusterTrustBundleProjection{Name: text("nobody")}, nil, `clustertrustbundle "nobody" not found`},
		"optional name":     {v1.ClusterTrustBundleProjection{Name: text("nobody"), Optional: &yes}, nil, ""},
		"optional selector": {v1.ClusterTrustBundleProjection{SignerName: text(signer), Optional: &yes}, nil, ""},
	} {
		c.source.Path = "ca.pem"
		pod := podWith(nil, v1.Volume{Name: "ca", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
			Sources: []v1.VolumeProjection{{ClusterTrustBundle: &c.source}},
		}}})
		disk := &files.Memory{}
		v := &Manager{Root: "/k", FS: disk, Mounter: disk, Bundles: server}
		paths, _, err := v.SetUp(t.Context(), pod, Facts{})
		if (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: %v, want %q", name, err, c.fault)
		}
		if err != nil {
			continue
		}
		raw, err := disk.ReadFile(paths["ca"]+"/ca.pem", 1<<20)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var got []string
		for block, rest := pem.Decode(raw); block != nil; block, rest = pem.Decode(rest) {
			got = append(got, string(block.Bytes))
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		slices.Reverse(server)
		if changed, err := v.write(paths["ca"], map[string]file{"ca.pem": {data: anchors(mustSelect(t, server, &c.source)), mode: 0o644}}, nil, nil); changed || err != nil {
			t.Errorf("%s: another order of the same bundles makes another file (%v)", name, err)
		}
	}
}

func mustSelect(t *testing.T, all bundles, source *v1.ClusterTrustBundleProjection) bundles {
	t.Helper()
	selected, err := selectBundles(all, source)
	if err != nil {
		t.Fatal(err)
	}
	return selected
}
