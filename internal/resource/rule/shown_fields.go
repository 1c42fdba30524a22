package rule

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
)

// shownFields are the fields of the types that messages show in another order
// than the API has them in, or without those of features that are off.
var shownFields = map[reflect.Type][]string{
	reflect.TypeFor[corev1.VolumeSource](): {
		"HostPath", "EmptyDir", "GCEPersistentDisk", "AWSElasticBlockStore", "GitRepo", "Secret", "NFS", "ISCSI",
		"Glusterfs", "PersistentVolumeClaim", "RBD", "Quobyte", "FlexVolume", "Cinder", "CephFS", "Flocker",
		"DownwardAPI", "FC", "AzureFile", "ConfigMap", "VsphereVolume", "AzureDisk", "PhotonPersistentDisk",
		"Projected", "PortworxVolume", "ScaleIO", "StorageOS", "CSI", "Ephemeral", "Image",
	},
	reflect.TypeFor[corev1.PersistentVolumeSource](): {
		"GCEPersistentDisk", "AWSElasticBlockStore", "HostPath", "Glusterfs", "NFS", "RBD", "Quobyte", "ISCSI",
		"FlexVolume", "Cinder", "CephFS", "FC", "Flocker", "AzureFile", "VsphereVolume", "AzureDisk",
		"PhotonPersistentDisk", "PortworxVolume", "ScaleIO", "Local", "StorageOS", "CSI",
	},
	reflect.TypeFor[corev1.VolumeMount](): {
		"Name", "ReadOnly", "RecursiveReadOnly", "MountPath", "SubPath", "MountPropagation", "SubPathExpr",
	},
	reflect.TypeFor[corev1.EmptyDirVolumeSource]():          {"Medium", "SizeLimit"},
	reflect.TypeFor[corev1.HTTPGetAction]():                 {"Path", "Port", "Host", "Scheme", "HTTPHeaders"},
	reflect.TypeFor[corev1.GRPCAction]():                    {"Port", "Service"},
	reflect.TypeFor[corev1.SecretVolumeSource]():            {"SecretName", "Items", "DefaultMode", "Optional"},
	reflect.TypeFor[corev1.ConfigMapVolumeSource]():         {"LocalObjectReference", "Items", "DefaultMode", "Optional"},
	reflect.TypeFor[corev1.DownwardAPIVolumeSource]():       {"Items", "DefaultMode"},
	reflect.TypeFor[corev1.ProjectedVolumeSource]():         {"Sources", "DefaultMode"},
	reflect.TypeFor[corev1.KeyToPath]():                     {"Key", "Path", "Mode"},
	reflect.TypeFor[corev1.DownwardAPIVolumeFile]():         {"Path", "FieldRef", "ResourceFieldRef", "Mode"},
	reflect.TypeFor[corev1.ServiceAccountTokenProjection](): {"Audience", "ExpirationSeconds", "Path"},
	reflect.TypeFor[corev1.ClusterTrustBundleProjection]():  {"Name", "SignerName", "LabelSelector", "Optional", "Path"},
	reflect.TypeFor[corev1.PodCertificateProjection](): {
		"SignerName", "KeyType", "MaxExpirationSeconds", "CredentialBundlePath", "KeyPath", "CertificateChainPath",
		"UserAnnotations",
	},
}
