/* Rust's std takes its random numbers from ProcessPrng in bcryptprimitives.dll,
 * which Wine before 9.0 lacks. This is that one function, on top of the older
 * RtlGenRandom, whose exported name is SystemFunction036. See wine-run. */
#include <windows.h>

BOOLEAN NTAPI SystemFunction036(PVOID buffer, ULONG length);

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE buffer, SIZE_T length)
{
    const ULONG most = 1 << 30;
    for (; length > most; buffer += most, length -= most)
        if (!SystemFunction036(buffer, most))
            return FALSE;
    return SystemFunction036(buffer, (ULONG)length);
}
