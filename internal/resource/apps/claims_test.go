package apps

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

// Claim templates of new StatefulSets are held to what claims are.
func TestClaimTemplates(t *testing.T) {
	for _, c := range []struct{ spec, want string }{
		{spec: `{accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}`},
		{
			spec: `{accessModes: [ReadWriteOnce], resources: {requests: {storage: "-1"}}}`,
			want: `spec.volumeClaimTemplates[0].spec.resources[storage]: Invalid value: "-1": must be greater than zero`,
		},
		{
			spec: `{accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, volumeMode: Tape}`,
			want: `spec.volumeClaimTemplates[0].spec.volumeMode: Unsupported value: "Tape": supported values: "Block", "Filesystem"`,
		},
		{
			spec: `{accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, selector: {matchExpressions: [{key: disk, operator: Is}]}}`,
			want: `spec.volumeClaimTemplates[0].spec.selector.matchExpressions[0].operator: Invalid value: "Is": not a valid selector operator`,
		},
		{
			spec: `{accessModes: [ReadWriteOncePod, ReadWriteOnce], resources: {requests: {storage: 1Gi}}}`,
			want: `spec.volumeClaimTemplates[0].spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes`,
		},
	} {
		var set appsv1.StatefulSet
		if err := yaml.Unmarshal([]byte(`{spec: {volumeClaimTemplates: [{spec: `+c.spec+`}]}}`), &set); err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := validateIdentity(&set).ToAggregate(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.spec, got, c.want)
		}
	}
}
