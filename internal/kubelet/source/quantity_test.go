package source

import (
	"strings"
	"testing"
)

// TestQuantitiesOfManifests checks that a manifest with a quantity that would take
// hours to compute with is refused before it is decoded.
func TestQuantitiesOfManifests(t *testing.T) {
	for manifest, want := range map[string]string{
		"{kind: Pod, metadata: {name: web}, spec: {containers: [{name: main, image: a, resources: {limits: {cpu: 1e900000000}}}]}}":                              "spec.containers[0].resources.limits[cpu]: the quantity",
		"{kind: Pod, metadata: {name: web}, spec: {containers: [{name: main, image: a, resources: {limits: {cpu: \"1\\x65-900000000\"}}}]}}":                     "spec.containers[0].resources.limits[cpu]: the quantity",
		"{kind: PodList, items: [{metadata: {name: web}, spec: {volumes: [{name: v, emptyDir: {sizeLimit: 1e900000000}}], containers: [{name: a, image: a}]}}]}": "items[0].spec.volumes[0].emptyDir.sizeLimit: the quantity",
		"{kind: Pod, metadata: {name: web, annotations: {commit: 1e900000000}}, spec: {containers: [{name: main, image: a, resources: {limits: {cpu: 1e3}}}]}}":  "",
	} {
		_, err := decode([]byte(manifest), folderName, "alpha")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %s", manifest, err, want)
		}
	}
}
