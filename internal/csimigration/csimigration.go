// Package csimigration knows the in-tree volume plugins whose volumes CSI
// drivers serve (KEP-625), and how the drivers name what the plugins did.
package csimigration

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// The in-tree plugins.
const (
	AWSEBS         = "kubernetes.io/aws-ebs"
	GCEPD          = "kubernetes.io/gce-pd"
	AzureDisk      = "kubernetes.io/azure-disk"
	AzureFile      = "kubernetes.io/azure-file"
	Cinder         = "kubernetes.io/cinder"
	VsphereVolume  = "kubernetes.io/vsphere-volume"
	PortworxVolume = "kubernetes.io/portworx-volume"
)

// zoneSeparator is between the zones in the label of a volume that is in several.
const zoneSeparator = "__"

// Driver returns the CSI driver that took the place of an in-tree plugin, or "".
func Driver(plugin string) string {
	switch plugin {
	case AWSEBS:
		return "ebs.csi.aws.com"
	case GCEPD:
		return "pd.csi.storage.gke.io"
	case AzureDisk:
		return "disk.csi.azure.com"
	case AzureFile:
		return "file.csi.azure.com"
	case Cinder:
		return "cinder.csi.openstack.org"
	case VsphereVolume:
		return "csi.vsphere.vmware.com"
	case PortworxVolume:
		return "pxd.portworx.com"
	}
	return ""
}

// Plugin returns the in-tree plugin of a volume that a driver serves, or "".
func Plugin(s *v1.PersistentVolumeSource) string {
	switch {
	case s.AWSElasticBlockStore != nil:
		return AWSEBS
	case s.GCEPersistentDisk != nil:
		return GCEPD
	case s.AzureDisk != nil:
		return AzureDisk
	case s.AzureFile != nil:
		return AzureFile
	case s.Cinder != nil:
		return Cinder
	case s.VsphereVolume != nil:
		return VsphereVolume
	case s.PortworxVolume != nil:
		return PortworxVolume
	}
	return ""
}

// IsMigrated reports whether a node leaves the volumes of a plugin to its driver.
func IsMigrated(csiNode *storagev1.CSINode, plugin string) bool {
	return slices.Contains(strings.Split(csiNode.Annotations[v1.MigratedPluginsAnnotationKey], ","), plugin)
}

// Translated returns a volume with the node affinity that its driver gives it:
// labels of zones become the driver's, labels of regions the driver's or the stable
// ones. A volume without an affinity to zones gets the affinity that its labels say.
// It returns the volume itself if the driver has no topology.
func Translated(pv *v1.PersistentVolume) *v1.PersistentVolume {
	zone, region := topologyKeys(Plugin(&pv.Spec.PersistentVolumeSource))
	if zone == "" {
		return pv
	}
	out := *pv
	var terms []v1.NodeSelectorTerm
	if a := pv.Spec.NodeAffinity; a != nil && a.Required != nil {
		terms = a.Required.DeepCopy().NodeSelectorTerms
	}
	zoned, regional := rename(terms, zone, region)
	if !zoned {
		terms = withLabel(terms, zone, pv.Labels, v1.LabelTopologyZone, v1.LabelFailureDomainBetaZone)
	}
	if !regional && region != v1.LabelTopologyRegion {
		terms = withLabel(terms, region, pv.Labels, v1.LabelTopologyRegion, v1.LabelFailureDomainBetaRegion)
	}
	if len(terms) > 0 {
		out.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: terms}}
	}
	return &out
}

// topologyKeys are the labels that the nodes of a plugin's driver have; "" is none.
func topologyKeys(plugin string) (zone, region string) {
	switch plugin {
	case AWSEBS:
		return "topology.ebs.csi.aws.com/zone", v1.LabelTopologyRegion
	case GCEPD:
		return "topology.gke.io/zone", v1.LabelTopologyRegion
	case AzureDisk:
		return "topology.disk.csi.azure.com/zone", v1.LabelTopologyRegion
	case Cinder:
		return "topology.cinder.csi.openstack.org/zone", v1.LabelTopologyRegion
	case VsphereVolume:
		return "topology.csi.vmware.com/zone", "topology.csi.vmware.com/region"
	}
	return "", ""
}

// rename replaces the keys of zones and regions, and reports which there are.
func rename(terms []v1.NodeSelectorTerm, zone, region string) (zoned, regional bool) {
	for i := range terms {
		for j := range terms[i].MatchExpressions {
			switch r := &terms[i].MatchExpressions[j]; r.Key {
			case v1.LabelTopologyZone, v1.LabelFailureDomainBetaZone:
				r.Key, zoned = zone, true
			case v1.LabelTopologyRegion, v1.LabelFailureDomainBetaRegion:
				r.Key, regional = region, true
			case zone:
				zoned = true
			case region:
				regional = true
			}
		}
	}
	return zoned, regional
}

// withLabel adds to each term, of which there may be none, the values of the
// first label that there is.
func withLabel(terms []v1.NodeSelectorTerm, key string, labels map[string]string, names ...string) []v1.NodeSelectorTerm {
	i := slices.IndexFunc(names, func(name string) bool { _, ok := labels[name]; return ok })
	if i < 0 {
		return terms
	}
	if len(terms) == 0 {
		terms = make([]v1.NodeSelectorTerm, 1)
	}
	for j := range terms {
		terms[j].MatchExpressions = append(terms[j].MatchExpressions, v1.NodeSelectorRequirement{
			Key: key, Operator: v1.NodeSelectorOpIn, Values: strings.Split(labels[names[i]], zoneSeparator),
		})
	}
	return terms
}
