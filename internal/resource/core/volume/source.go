package volume

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource/core/resourcelist"
	"github.com/coracle-io/coracle/internal/resource/defaults"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// StorageKinds returns the kinds that a storage system provides, for the
// sources of v.
func StorageKinds(v *corev1.VolumeSource) []Kind {
	return []Kind{
		{"gcePersistentDisk", v.GCEPersistentDisk != nil, func(at *field.Path) field.ErrorList {
			errs := validators.Required(at.Child("pdName"), v.GCEPersistentDisk.PDName)
			return append(errs, validatePartition(v.GCEPersistentDisk.Partition, at.Child("partition"))...)
		}},
		{"awsElasticBlockStore", v.AWSElasticBlockStore != nil, func(at *field.Path) field.ErrorList {
			errs := validators.Required(at.Child("volumeID"), v.AWSElasticBlockStore.VolumeID)
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
			return append(validators.Required(at.Child("endpoints"), v.Glusterfs.EndpointsName), validators.Required(at.Child("path"), v.Glusterfs.Path)...)
		}},
		{"flocker", v.Flocker != nil, func(at *field.Path) field.ErrorList { return validateFlocker(v.Flocker, at) }},
		{"rbd", v.RBD != nil, func(at *field.Path) field.ErrorList { return validateRBD(v.RBD.CephMonitors, v.RBD.RBDImage, at) }},
		{"cinder", v.Cinder != nil, func(at *field.Path) field.ErrorList {
			errs := validators.Required(at.Child("volumeID"), v.Cinder.VolumeID)
			if v.Cinder.SecretRef != nil {
				errs = append(errs, validators.Required(at.Child("secretRef", "name"), v.Cinder.SecretRef.Name)...)
			}
			return errs
		}},
		{"cephfs", v.CephFS != nil, func(at *field.Path) field.ErrorList {
			return requireOne(at.Child("monitors"), v.CephFS.Monitors)
		}},
		{"quobyte", v.Quobyte != nil, func(at *field.Path) field.ErrorList { return validateQuobyte(v.Quobyte, at) }},
		{"fc", v.FC != nil, func(at *field.Path) field.ErrorList { return validateFibreChannel(v.FC, at) }},
		{"flexVolume", v.FlexVolume != nil, func(at *field.Path) field.ErrorList {
			return validateFlex(v.FlexVolume.Driver, v.FlexVolume.Options, at)
		}},
		{"azureFile", v.AzureFile != nil, func(at *field.Path) field.ErrorList {
			return append(validators.Required(at.Child("secretName"), v.AzureFile.SecretName), validators.Required(at.Child("shareName"), v.AzureFile.ShareName)...)
		}},
		{"vsphereVolume", v.VsphereVolume != nil, func(at *field.Path) field.ErrorList {
			return validators.Required(at.Child("volumePath"), v.VsphereVolume.VolumePath)
		}},
		{"photonPersistentDisk", v.PhotonPersistentDisk != nil, func(at *field.Path) field.ErrorList {
			return validators.Required(at.Child("pdID"), v.PhotonPersistentDisk.PdID)
		}},
		{"portworxVolume", v.PortworxVolume != nil, func(at *field.Path) field.ErrorList {
			return validators.Required(at.Child("volumeID"), v.PortworxVolume.VolumeID)
		}},
		{"azureDisk", v.AzureDisk != nil, func(at *field.Path) field.ErrorList { return validateAzureDisk(v.AzureDisk, at) }},
		{"storageos", v.StorageOS != nil, func(at *field.Path) field.ErrorList {
			errs := validateStorageOS(v.StorageOS.VolumeName, v.StorageOS.VolumeNamespace, at)
			if v.StorageOS.SecretRef != nil {
				errs = append(errs, validators.Required(at.Child("secretRef", "name"), v.StorageOS.SecretRef.Name)...)
			}
			return errs
		}},
		{"scaleIO", v.ScaleIO != nil, func(at *field.Path) field.ErrorList {
			errs := validators.Required(at.Child("gateway"), v.ScaleIO.Gateway)
			errs = append(errs, validators.Required(at.Child("system"), v.ScaleIO.System)...)
			return append(errs, validators.Required(at.Child("volumeName"), v.ScaleIO.VolumeName)...)
		}},
		{"csi", v.CSI != nil, func(at *field.Path) field.ErrorList {
			errs := validateCSIDriverName(v.CSI.Driver, at.Child("driver"))
			if ref := v.CSI.NodePublishSecretRef; ref != nil {
				errs = append(errs, validators.Required(at.Child("nodePublishSecretRef", "name"), ref.Name)...)
				if ref.Name != "" {
					errs = append(errs, validators.Subdomain(at.Child("name"), ref.Name)...)
				}
			}
			return errs
		}},
	}
}

func validatePartition(partition int32, at *field.Path) field.ErrorList {
	if partition < 0 || partition > 255 {
		return field.ErrorList{field.Invalid(at, partition, utilvalidation.InclusiveRangeError(1, 255))}
	}
	return nil
}

func validateNFS(n *corev1.NFSVolumeSource, at *field.Path) field.ErrorList {
	errs := validators.Required(at.Child("server"), n.Server)
	errs = append(errs, validators.Required(at.Child("path"), n.Path)...)
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

// validateISCSI checks a target. unknown is appended to the error about a name
// that has none of the three forms.
func validateISCSI(portal, iqn string, lun int32, initiator *string, unknown string, at *field.Path) field.ErrorList {
	errs := validators.Required(at.Child("targetPortal"), portal)
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
	return append(requireOne(at.Child("monitors"), monitors), validators.Required(at.Child("image"), image)...)
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
	return append(errs, validators.Required(at.Child("volume"), q.Volume)...)
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
	errs := validators.Required(at.Child("driver"), driver)
	for key := range options {
		namespace, _, _ := strings.Cut("."+strings.ToLower(key), "/")
		if strings.HasSuffix(namespace, ".kubernetes.io") || strings.HasSuffix(namespace, ".k8s.io") {
			errs = append(errs, field.Invalid(at.Child("options").Key(key), key, "kubernetes.io and k8s.io namespaces are reserved"))
		}
	}
	return errs
}

func validateStorageOS(volume, namespace string, at *field.Path) field.ErrorList {
	errs := validators.Required(at.Child("volumeName"), volume)
	if volume != "" {
		errs = validators.Label(at.Child("volumeName"), volume)
	}
	if namespace != "" {
		errs = append(errs, validators.Label(at.Child("volumeNamespace"), namespace)...)
	}
	return errs
}

func validateAzureDisk(d *corev1.AzureDiskVolumeSource, at *field.Path) field.ErrorList {
	errs := validators.Required(at.Child("diskName"), d.DiskName)
	errs = append(errs, validators.Required(at.Child("diskURI"), d.DataDiskURI)...)
	if d.CachingMode != nil {
		errs = append(errs, validators.Enum(at.Child("cachingMode"), *d.CachingMode, corev1.AzureDataDiskCachingNone,
			corev1.AzureDataDiskCachingReadOnly, corev1.AzureDataDiskCachingReadWrite)...)
	}
	if d.Kind != nil {
		errs = append(errs, validators.Enum(at.Child("kind"), *d.Kind, corev1.AzureSharedBlobDisk, corev1.AzureDedicatedBlobDisk, corev1.AzureManagedDisk)...)
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
// most 63 characters, in which capitals are allowed.
func validateCSIDriverName(name string, at *field.Path) field.ErrorList {
	const longest = 63
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	if len(name) > longest {
		errs = append(errs, field.TooLong(at, "", longest))
	}
	return append(errs, validators.Problems(at, name, utilvalidation.IsDNS1123Subdomain(strings.ToLower(name)))...)
}

// accessModes are the access modes of volumes, sorted.
func accessModes() []corev1.PersistentVolumeAccessMode {
	return []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod}
}

// validateAccessModes checks the access modes of a volume or a claim.
func validateAccessModes(modes []corev1.PersistentVolumeAccessMode, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	exclusive, shared := false, false
	for _, mode := range modes {
		if !slices.Contains(accessModes(), mode) {
			errs = append(errs, field.NotSupported(at, mode, accessModes()))
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

func volumeModes() []corev1.PersistentVolumeMode {
	return []corev1.PersistentVolumeMode{corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem}
}

// requireOne requires a list that is not empty.
func requireOne(at *field.Path, list []string) field.ErrorList {
	if len(list) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	return nil
}

// A Kind is one kind of volume source.
type Kind struct {
	// Name is the name of the source's field.
	Name string
	// Set reports whether the volume has this source.
	Set bool
	// Validate checks the source at a path.
	Validate func(at *field.Path) field.ErrorList
}

// extraKind returns the error for a further kind of a volume. Upstream spells
// two of the names differently in it.
func (k Kind) extraKind(at *field.Path) *field.Error {
	name := k.Name
	switch name {
	case "cephfs":
		name = "cephFS"
	case "downwardAPI":
		name = "downwarAPI"
	case "persistentDisk":
		name = "gcePersistentDisk"
	}
	return field.Forbidden(at.Child(name), "may not specify more than 1 volume type")
}

// ValidateHostPath checks a path on the node and the type of file that is
// required there.
func ValidateHostPath(h *corev1.HostPathVolumeSource, at *field.Path) field.ErrorList {
	if h.Path == "" {
		return field.ErrorList{field.Required(at.Child("path"), "")}
	}
	errs := validators.NoBacksteps(at.Child("path"), h.Path)
	types := sets.New(corev1.HostPathUnset, corev1.HostPathDirectoryOrCreate, corev1.HostPathDirectory,
		corev1.HostPathFileOrCreate, corev1.HostPathFile, corev1.HostPathSocket, corev1.HostPathCharDev, corev1.HostPathBlockDev)
	if h.Type != nil && !types.Has(*h.Type) {
		errs = append(errs, field.NotSupported(at.Child("type"), h.Type, sets.List(types)))
	}
	return errs
}

// DefaultAzureDisk sets the defaults of an Azure disk.
func DefaultAzureDisk(disk *corev1.AzureDiskVolumeSource) {
	defaults.Nil(&disk.CachingMode, corev1.AzureDataDiskCachingReadWrite)
	defaults.Nil(&disk.Kind, corev1.AzureSharedBlobDisk)
	defaults.Nil(&disk.FSType, "ext4")
	defaults.Nil(&disk.ReadOnly, false)
}

// DefaultClaimSpec sets the defaults of a claim.
func DefaultClaimSpec(spec *corev1.PersistentVolumeClaimSpec) {
	defaults.Nil(&spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	resourcelist.RoundUp(spec.Resources.Limits)
	resourcelist.RoundUp(spec.Resources.Requests)
}

// ValidateSource checks the first of kinds that is set, and reports each
// further one as an error. One must be set.
func ValidateSource(kinds []Kind, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	found := 0
	for _, kind := range kinds {
		if !kind.Set {
			continue
		}
		if found++; found > 1 {
			errs = append(errs, kind.extraKind(at))
			continue
		}
		errs = append(errs, kind.Validate(at.Child(kind.Name))...)
	}
	if found == 0 {
		errs = append(errs, field.Required(at, "must specify a volume type"))
	}
	return errs
}
