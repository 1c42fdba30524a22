package volume

import (
	"bytes"
	"crypto/sha256"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// trustBundle adds the certificates of the trust bundles that a source selects
// (KEP-3257). If the bundles are optional and missing, the file is empty.
func (w *payload) trustBundle(source *v1.ClusterTrustBundleProjection, mode *int32) error {
	if w.volumes.Bundles == nil {
		return errors.New("cluster trust bundles need an API server")
	}
	all, err := w.volumes.Bundles.TrustBundles(w.ctx)
	if err != nil {
		return fmt.Errorf("error while getting ClusterTrustBundles: %w", err)
	}
	selected, err := selectBundles(all, source)
	if err != nil {
		return err
	}
	if len(selected) == 0 && (source.Optional == nil || !*source.Optional) {
		if source.Name != nil {
			return fmt.Errorf("clustertrustbundle %q not found", *source.Name)
		}
		return errors.New("combination of signerName and labelSelector matched zero ClusterTrustBundles")
	}
	shown := make([]string, 0, len(selected))
	for _, b := range selected {
		shown = append(shown, b.Name)
	}
	return w.credential("bundles/"+strings.Join(shown, "/"), source.Path, anchors(selected), mode)
}

// selectBundles returns the bundle that a source names, or the bundles of its
// signer that match its selector.
func selectBundles(all []*certificatesv1.ClusterTrustBundle, source *v1.ClusterTrustBundleProjection) (selected []*certificatesv1.ClusterTrustBundle, err error) {
	selector, err := metav1.LabelSelectorAsSelector(source.LabelSelector)
	if err != nil {
		return nil, err
	}
	for _, b := range all {
		switch {
		case source.Name != nil && b.Name == *source.Name,
			source.Name == nil && source.SignerName != nil && b.Spec.SignerName == *source.SignerName && selector.Matches(labels.Set(b.Labels)):
			selected = append(selected, b)
		}
	}
	return selected, nil
}

// anchors returns the certificates of bundles without duplicates, ordered by
// their hashes. The order has no meaning, so that users cannot rely on it.
func anchors(selected []*certificatesv1.ClusterTrustBundle) []byte {
	type anchor struct {
		hash [sha256.Size]byte
		der  []byte
	}
	var found []anchor
	for _, b := range selected {
		for block, rest := pem.Decode([]byte(b.Spec.TrustBundle)); block != nil; block, rest = pem.Decode(rest) {
			found = append(found, anchor{sha256.Sum256(block.Bytes), block.Bytes})
		}
	}
	slices.SortFunc(found, func(a, b anchor) int { return bytes.Compare(a.hash[:], b.hash[:]) })
	found = slices.CompactFunc(found, func(a, b anchor) bool { return a.hash == b.hash })
	var out bytes.Buffer
	for _, a := range found {
		_, _ = out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.der}))
	}
	return out.Bytes()
}
