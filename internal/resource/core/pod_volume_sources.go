package core

import (
	"fmt"
	"net"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// storageVolumeKinds are the sources that some storage system provides.
func storageVolumeKinds(v *corev1.VolumeSource) []volumeKind {
	return []volumeKind{
		{"gcePersistentDisk", v.GCEPersistentDisk != nil, func(at *field.Path) field.ErrorList {
			errs := required(v.GCEPersistentDisk.PDName, at.Child("pdName"))
			return append(errs, validatePartition(v.GCEPersistentDisk.Partition, at.Child("partition"))...)
		}},
		{"awsElasticBlockStore", v.AWSElasticBlockStore != nil, func(at *field.Path) field.ErrorList {
			errs := required(v.AWSElasticBlockStore.VolumeID, at.Child("volumeID"))
			return append(errs, validatePartition(v.AWSElasticBlockStore.Partition, at.Child("partition"))...)
		}},
		{"nfs", v.NFS != nil, func(at *field.Path) field.ErrorList { return validateNFS(v.NFS, at) }},
		{"iscsi", v.ISCSI != nil, func(at *field.Path) field.ErrorList {
			errs := validateISCSI(v.ISCSI.TargetPortal, v.ISCSI.IQN, v.ISCSI.Lun, v.ISCSI.InitiatorName, " starting with iqn, eui, or naa", at)
			if (v.ISCSI.DiscoveryCHAPAuth || v.ISCSI.SessionCHAPAuth) && v.ISCSI.SecretRef == nil {
				errs = append(errs, field.Required(at.Child("secretRef"), ""))
			}
			return errs
		}},
		{"glusterfs", v.Glusterfs != nil, func(at *field.Path) field.ErrorList {
			return append(required(v.Glusterfs.EndpointsName, at.Child("endpoints")), required(v.Glusterfs.Path, at.Child("path"))...)
		}},
		{"flocker", v.Flocker != nil, func(at *field.Path) field.ErrorList { return validateFlocker(v.Flocker, at) }},
		{"rbd", v.RBD != nil, func(at *field.Path) field.ErrorList { return validateRBD(v.RBD.CephMonitors, v.RBD.RBDImage, at) }},
		{"cinder", v.Cinder != nil, func(at *field.Path) field.ErrorList {
			errs := required(v.Cinder.VolumeID, at.Child("volumeID"))
			if v.Cinder.SecretRef != nil {
				errs = append(errs, required(v.Cinder.SecretRef.Name, at.Child("secretRef", "name"))...)
			}
			return errs
		}},
		{"cephfs", v.CephFS != nil, func(at *field.Path) field.ErrorList {
			return requiredList(v.CephFS.Monitors, at.Child("monitors"))
		}},
		{"quobyte", v.Quobyte != nil, func(at *field.Path) field.ErrorList { return validateQuobyte(v.Quobyte, at) }},
		{"fc", v.FC != nil, func(at *field.Path) field.ErrorList { return validateFibreChannel(v.FC, at) }},
		{"flexVolume", v.FlexVolume != nil, func(at *field.Path) field.ErrorList {
			return validateFlex(v.FlexVolume.Driver, v.FlexVolume.Options, at)
		}},
		{"azureFile", v.AzureFile != nil, func(at *field.Path) field.ErrorList {
			return append(required(v.AzureFile.SecretName, at.Child("secretName")), required(v.AzureFile.ShareName, at.Child("shareName"))...)
		}},
		{"vsphereVolume", v.VsphereVolume != nil, func(at *field.Path) field.ErrorList {
			return required(v.VsphereVolume.VolumePath, at.Child("volumePath"))
		}},
		{"photonPersistentDisk", v.PhotonPersistentDisk != nil, func(at *field.Path) field.ErrorList {
			return required(v.PhotonPersistentDisk.PdID, at.Child("pdID"))
		}},
		{"portworxVolume", v.PortworxVolume != nil, func(at *field.Path) field.ErrorList {
			return required(v.PortworxVolume.VolumeID, at.Child("volumeID"))
		}},
		{"azureDisk", v.AzureDisk != nil, func(at *field.Path) field.ErrorList { return validateAzureDisk(v.AzureDisk, at) }},
		{"storageos", v.StorageOS != nil, func(at *field.Path) field.ErrorList {
			errs := validateStorageOS(v.StorageOS.VolumeName, v.StorageOS.VolumeNamespace, at)
			if v.StorageOS.SecretRef != nil {
				errs = append(errs, required(v.StorageOS.SecretRef.Name, at.Child("secretRef", "name"))...)
			}
			return errs
		}},
		{"scaleIO", v.ScaleIO != nil, func(at *field.Path) field.ErrorList {
			errs := required(v.ScaleIO.Gateway, at.Child("gateway"))
			errs = append(errs, required(v.ScaleIO.System, at.Child("system"))...)
			return append(errs, required(v.ScaleIO.VolumeName, at.Child("volumeName"))...)
		}},
		{"csi", v.CSI != nil, func(at *field.Path) field.ErrorList {
			errs := validateCSIDriverName(v.CSI.Driver, at.Child("driver"))
			if ref := v.CSI.NodePublishSecretRef; ref != nil {
				errs = append(errs, required(ref.Name, at.Child("nodePublishSecretRef", "name"))...)
				if ref.Name != "" {
					errs = append(errs, invalid(at.Child("name"), ref.Name, nameIsDNSSubdomain(ref.Name))...)
				}
			}
			return errs
		}},
	}
}

func requiredList(list []string, at *field.Path) field.ErrorList {
	if len(list) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	return nil
}

func validatePartition(partition int32, at *field.Path) field.ErrorList {
	if partition < 0 || partition > 255 {
		return field.ErrorList{field.Invalid(at, partition, utilvalidation.InclusiveRangeError(1, 255))}
	}
	return nil
}

func validateNFS(n *corev1.NFSVolumeSource, at *field.Path) field.ErrorList {
	errs := required(n.Server, at.Child("server"))
	errs = append(errs, required(n.Path, at.Child("path"))...)
	if n.Path == "" || n.Path[0] != '/' {
		errs = append(errs, field.Invalid(at.Child("path"), n.Path, "must be an absolute path"))
	}
	return errs
}

var (
	iscsiIQN = regexp.MustCompile(`iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`)
	iscsiEUI = regexp.MustCompile(`^eui.[[:alnum:]]{16}$`)
	iscsiNAA = regexp.MustCompile(`^naa.[[:alnum:]]{32}$`)
)

// validateISCSI checks a target. unknown is added to what is said of a name
// that is of none of the three forms.
func validateISCSI(portal, iqn string, lun int32, initiator *string, unknown string, at *field.Path) field.ErrorList {
	errs := required(portal, at.Child("targetPortal"))
	if iqn == "" {
		errs = append(errs, field.Required(at.Child("iqn"), ""))
	} else {
		errs = append(errs, validateISCSIName(iqn, unknown, at.Child("iqn"))...)
	}
	if lun < 0 || lun > 255 {
		errs = append(errs, field.Invalid(at.Child("lun"), lun, utilvalidation.InclusiveRangeError(0, 255)))
	}
	if initiator != nil {
		errs = append(errs, validateISCSIName(*initiator, unknown, at.Child("initiatorname"))...)
	}
	return errs
}

func validateISCSIName(name, unknown string, at *field.Path) field.ErrorList {
	for prefix, form := range map[string]*regexp.Regexp{"iqn": iscsiIQN, "eui": iscsiEUI, "naa": iscsiNAA} {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		if form.MatchString(name) {
			return nil
		}
		unknown = ""
	}
	return field.ErrorList{field.Invalid(at, name, "must be valid format"+unknown)}
}

func validateFlocker(f *corev1.FlockerVolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case f.DatasetName == "" && f.DatasetUUID == "":
		errs = append(errs, field.Required(at, "one of datasetName and datasetUUID is required"))
	case f.DatasetName != "" && f.DatasetUUID != "":
		errs = append(errs, field.Invalid(at, "resource", "datasetName and datasetUUID can not be specified simultaneously"))
	}
	for i := range f.DatasetName {
		if f.DatasetName[i] == '/' {
			return append(errs, field.Invalid(at.Child("datasetName"), f.DatasetName, "must not contain '/'"))
		}
	}
	return errs
}

func validateRBD(monitors []string, image string, at *field.Path) field.ErrorList {
	return append(requiredList(monitors, at.Child("monitors")), required(image, at.Child("image"))...)
}

func validateQuobyte(q *corev1.QuobyteVolumeSource, at *field.Path) field.ErrorList {
	const hosts = "must be a host:port pair or multiple pairs separated by commas"
	var errs field.ErrorList
	switch {
	case q.Registry == "":
		errs = append(errs, field.Required(at.Child("registry"), hosts))
	case len(q.Tenant) >= 65:
		errs = append(errs, field.Required(at.Child("tenant"), "must be a UUID and may not exceed a length of 64 characters"))
	default:
		for _, pair := range strings.Split(q.Registry, ",") {
			if _, _, err := net.SplitHostPort(pair); err != nil {
				errs = append(errs, field.Invalid(at.Child("registry"), q.Registry, hosts))
			}
		}
	}
	return append(errs, required(q.Volume, at.Child("volume"))...)
}

func validateFibreChannel(f *corev1.FCVolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(f.TargetWWNs) == 0 && len(f.WWIDs) == 0 {
		errs = append(errs, field.Required(at.Child("targetWWNs"), "must specify either targetWWNs or wwids, but not both"))
	}
	if len(f.TargetWWNs) > 0 && len(f.WWIDs) > 0 {
		errs = append(errs, field.Invalid(at.Child("targetWWNs"), f.TargetWWNs, "targetWWNs and wwids can not be specified simultaneously"))
	}
	if len(f.TargetWWNs) > 0 {
		if f.Lun == nil {
			errs = append(errs, field.Required(at.Child("lun"), "lun is required if targetWWNs is specified"))
		} else if *f.Lun < 0 || *f.Lun > 255 {
			errs = append(errs, field.Invalid(at.Child("lun"), f.Lun, utilvalidation.InclusiveRangeError(0, 255)))
		}
	}
	return errs
}

func validateFlex(driver string, options map[string]string, at *field.Path) field.ErrorList {
	errs := required(driver, at.Child("driver"))
	for key := range options {
		namespace, _, _ := strings.Cut("."+strings.ToLower(key), "/")
		if strings.HasSuffix(namespace, ".kubernetes.io") || strings.HasSuffix(namespace, ".k8s.io") {
			errs = append(errs, field.Invalid(at.Child("options").Key(key), key, "kubernetes.io and k8s.io namespaces are reserved"))
		}
	}
	return errs
}

func validateStorageOS(volume, namespace string, at *field.Path) field.ErrorList {
	errs := required(volume, at.Child("volumeName"))
	if volume != "" {
		errs = invalid(at.Child("volumeName"), volume, utilvalidation.IsDNS1123Label(volume))
	}
	if namespace != "" {
		errs = append(errs, invalid(at.Child("volumeNamespace"), namespace, utilvalidation.IsDNS1123Label(namespace))...)
	}
	return errs
}

func validateAzureDisk(d *corev1.AzureDiskVolumeSource, at *field.Path) field.ErrorList {
	errs := required(d.DiskName, at.Child("diskName"))
	errs = append(errs, required(d.DataDiskURI, at.Child("diskURI"))...)
	if d.CachingMode != nil {
		errs = append(errs, oneOf(*d.CachingMode, at.Child("cachingMode"), corev1.AzureDataDiskCachingNone,
			corev1.AzureDataDiskCachingReadOnly, corev1.AzureDataDiskCachingReadWrite)...)
	}
	if d.Kind != nil {
		errs = append(errs, oneOf(*d.Kind, at.Child("kind"), corev1.AzureSharedBlobDisk, corev1.AzureDedicatedBlobDisk, corev1.AzureManagedDisk)...)
		start, form := "https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
		if *d.Kind == corev1.AzureManagedDisk {
			start, form = "/subscriptions/", "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
		}
		if !strings.HasPrefix(d.DataDiskURI, start) {
			errs = append(errs, field.NotSupported(at.Child("diskURI"), d.DataDiskURI, []string{form}))
		}
	}
	return errs
}

// validateCSIDriverName checks the name of a CSI driver: a DNS subdomain of at
// most 63 characters, capitals allowed.
func validateCSIDriverName(name string, at *field.Path) field.ErrorList {
	const longest = 63
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	if len(name) > longest {
		errs = append(errs, field.TooLong(at, "", longest))
	}
	return append(errs, invalid(at, name, utilvalidation.IsDNS1123Subdomain(strings.ToLower(name)))...)
}

var accessModes = sets.New(corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOncePod)

// validateAccessModes checks how many nodes and pods may use a volume at once.
func validateAccessModes(modes []corev1.PersistentVolumeAccessMode, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	exclusive, shared := false, false
	for _, mode := range modes {
		if !accessModes.Has(mode) {
			errs = append(errs, field.NotSupported(at, mode, sets.List(accessModes)))
			continue
		}
		exclusive = exclusive || mode == corev1.ReadWriteOncePod
		shared = shared || mode != corev1.ReadWriteOncePod
	}
	if exclusive && shared {
		errs = append(errs, field.Forbidden(at, fmt.Sprintf("may not use %s with other access modes", corev1.ReadWriteOncePod)))
	}
	return errs
}

var volumeModes = []corev1.PersistentVolumeMode{corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem}
